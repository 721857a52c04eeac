use std::future::Future;

use super::Noted;
use crate::engine::{Entered, Run as _, contract, enter, leave, share};
use crate::error::Error;
use crate::operation::Call;
use crate::store::Store;

/// Where the records of a batch are kept: a pool (also `records.pool(&pool)`) or a leased store.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot keep the records of a batch",
    label = "not a store",
    note = "use a pool, or a leased store such as `MemoryStore`; for a transaction of your own there is `Batch::all_in`"
)]
pub trait Keeper: Sync {
    /// Records this, or tells what was recorded before.
    #[doc(hidden)]
    fn keep(&self, call: Call, noted: Noted) -> impl Future<Output = Result<Noted, Error>> + Send;

    /// The envelope of a completed record.
    #[doc(hidden)]
    fn kept(&self, call: Call) -> impl Future<Output = Result<Option<Noted>, Error>> + Send;
}

impl<S: Store> Keeper for S {
    async fn keep(&self, call: Call, noted: Noted) -> Result<Noted, Error> {
        let contract = contract::<Noted, Error>();
        let mut access = share(self);
        let run = match enter(&mut access, call, &contract).await {
            Entered::Run(run) => run,
            Entered::Answer(answer) => return answer,
        };
        let driven = run.driver().drive(async { Ok(noted) }).await;
        leave(&mut access, run, driven, &contract).await
    }

    async fn kept(&self, call: Call) -> Result<Option<Noted>, Error> {
        kept(self, Store::namespace(self), call).await
    }
}

async fn kept(
    store: impl crate::status::Asked,
    namespace: &str,
    mut call: Call,
) -> Result<Option<Noted>, Error> {
    call.enter_namespace(namespace);
    match crate::status::of_record(store, call.id()).await? {
        crate::status::Status::Completed(done) => {
            crate::outcome::decode_ok(&done.outcome).map(Some)
        }
        _ => Ok(None),
    }
}

#[cfg(feature = "_sqlx")]
mod sql {
    use sqlx::Pool;

    use super::{Keeper, Noted, kept};
    use crate::engine::{Entered, Run as _, close, contract, open};
    use crate::error::Error;
    use crate::operation::Call;
    use crate::store::sql::{Dialect, OwnPool, PoolWith, Records};

    async fn keep<P: OwnPool>(pool: &P, call: Call, noted: Noted) -> Result<Noted, Error> {
        let contract = contract::<Noted, Error>();
        let run = match open(pool, call, &contract).await {
            Entered::Run(run) => run,
            Entered::Answer(answer) => return answer,
        };
        let driven = run.driver().drive(async { Ok(noted) }).await;
        close(run, driven, &contract).await
    }

    impl<D: Dialect> Keeper for Pool<D> {
        async fn keep(&self, call: Call, noted: Noted) -> Result<Noted, Error> {
            keep(self, call, noted).await
        }

        async fn kept(&self, call: Call) -> Result<Option<Noted>, Error> {
            kept(self, Records::shared().namespace_str(), call).await
        }
    }

    impl<D: Dialect> Keeper for PoolWith<D> {
        async fn keep(&self, call: Call, noted: Noted) -> Result<Noted, Error> {
            keep(self, call, noted).await
        }

        async fn kept(&self, call: Call) -> Result<Option<Noted>, Error> {
            kept(self, self.records().namespace_str(), call).await
        }
    }
}
