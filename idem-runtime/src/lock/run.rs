//! What is run under a lock, whatever holds it.

/// The methods that need nothing of a lock but its `acquire`; `$dropped` is what becomes of the lock
/// when they are.
macro_rules! runs {
    ($dropped:literal) => {
        /// [Acquires](Self::acquire) the lock and [runs](LockGuard::run) the body under it.
        ///
        /// # Errors
        /// Those of the two.
        ///
        /// # Cancel safety
        #[doc = $dropped]
        pub async fn run<T, F>(
            &self,
            name: &str,
            body: impl FnOnce($crate::protocol::Fence) -> F,
        ) -> Result<T, $crate::lock::RunError<T>>
        where
            F: Future<Output = T>,
        {
            self.acquire(name).await?.run(body).await
        }

        /// Looks whether there is something to do before the lock is taken, and once more under it:
        /// of many who find nothing at once, one does it and the others find what it did.
        ///
        /// `check` gives what is there already. It is called once or twice, the second time with the
        /// lock held; it must see what others have committed (read outside an older snapshot).
        ///
        /// # Errors
        /// As [`run`](Self::run).
        ///
        /// # Cancel safety
        /// As [`run`](Self::run).
        pub async fn check_then<T, C, F>(
            &self,
            name: &str,
            check: impl Fn() -> C,
            body: impl FnOnce($crate::protocol::Fence) -> F,
        ) -> Result<T, $crate::lock::RunError<T>>
        where
            C: Future<Output = Option<T>>,
            F: Future<Output = T>,
        {
            if let Some(found) = check().await {
                return Ok(found);
            }
            let body = async |fence| match check().await {
                Some(found) => found,
                None => body(fence).await,
            };
            self.run(name, body).await
        }
    };
}

pub(super) use runs;
