use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use idem_test_support::poll::{count_polls, drop_after, drop_after_time};

/// Sets its flag when it is dropped.
struct Flag<'a>(&'a AtomicBool);

impl Drop for Flag<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

async fn three_awaits(dropped: &AtomicBool) -> u8 {
    let _flag = Flag(dropped);
    for _ in 0..3 {
        tokio::task::yield_now().await;
    }
    7
}

#[tokio::test]
async fn a_future_is_dropped_at_each_of_its_awaits() {
    let mut completed_at = None;
    for polls in 0..10 {
        let dropped = AtomicBool::new(false);
        let output = drop_after(three_awaits(&dropped), polls).await;
        // A future that was never polled has not begun, so nothing of it is there to be dropped.
        assert_eq!(dropped.load(Ordering::SeqCst), polls > 0);
        if output.is_some() {
            assert_eq!(output, Some(7));
            completed_at = Some(polls);
            break;
        }
    }
    assert_eq!(completed_at, Some(4));
    assert_eq!(
        count_polls(three_awaits(&AtomicBool::new(false))).await,
        (4, 7)
    );
}

#[tokio::test]
async fn a_future_is_dropped_after_a_time() {
    let dropped = AtomicBool::new(false);
    let slow = async {
        let _flag = Flag(&dropped);
        std::future::pending::<()>().await;
    };
    assert_eq!(drop_after_time(slow, Duration::from_millis(5)).await, None);
    assert!(dropped.load(Ordering::SeqCst));
    assert_eq!(
        drop_after_time(async { 1 }, Duration::from_secs(5)).await,
        Some(1)
    );
}
