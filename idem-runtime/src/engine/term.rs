use tokio::sync::watch;
use tokio::time::Instant;

/// Until when something is certainly held, as far as this process knows, told to whoever holds it.
///
/// What is over stays over: an extension that comes too late is none.
#[derive(Debug)]
pub(crate) struct Term(watch::Sender<Option<Instant>>);

/// The holder's side of a [`Term`].
#[derive(Clone, Debug)]
pub(crate) struct TermWatch(watch::Receiver<Option<Instant>>);

impl Term {
    pub(crate) fn until(end: Instant) -> (Self, TermWatch) {
        let (sender, receiver) = watch::channel(Some(end));
        (Self(sender), TermWatch(receiver))
    }

    /// `false`: it is over already.
    pub(crate) fn extend(&self, to: Instant) -> bool {
        // The clock is read under the lock that readers take: nobody has seen it over who sees it
        // longer afterwards.
        self.0.send_if_modified(|end| {
            let runs = end.is_some_and(|end| Instant::now() < end);
            if runs {
                *end = Some(to);
            }
            runs
        })
    }

    pub(crate) fn is_over(&self) -> bool {
        over(*self.0.borrow())
    }

    pub(crate) fn end(&self) {
        self.0.send_replace(None);
    }
}

impl TermWatch {
    pub(crate) fn is_over(&self) -> bool {
        let end = self.0.borrow();
        over(*end)
    }

    /// When it ends unless it is extended; `None`: it has ended.
    pub(crate) fn end(&self) -> Option<Instant> {
        *self.0.borrow()
    }

    /// Ends when the term is over. When nobody is left to extend it, its time still runs.
    pub(crate) async fn over(mut self) {
        loop {
            let Some(end) = *self.0.borrow_and_update() else {
                return;
            };
            tokio::select! {
                biased;
                changed = self.0.changed() => if changed.is_err() {
                    tokio::time::sleep_until(end).await;
                    return;
                },
                () = tokio::time::sleep_until(end) => if self.is_over() {
                    return;
                },
            }
        }
    }
}

fn over(end: Option<Instant>) -> bool {
    end.is_none_or(|end| Instant::now() >= end)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::advance;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn what_is_over_is_not_extended() {
        let (term, watch) = Term::until(Instant::now() + SECOND);
        advance(SECOND / 2).await;
        assert!(term.extend(Instant::now() + SECOND));
        advance(SECOND * 9 / 10).await;
        assert!(!watch.is_over());
        advance(SECOND / 10).await;
        assert!(watch.is_over() && term.is_over());
        assert!(!term.extend(Instant::now() + SECOND));
        assert!(watch.is_over());
    }

    #[tokio::test(start_paused = true)]
    async fn it_runs_out_when_nobody_is_left_to_extend_it() {
        let begin = Instant::now();
        let (term, watch) = Term::until(begin + SECOND);
        assert!(term.extend(begin + SECOND * 2));
        drop(term);
        assert!(!watch.is_over());
        watch.over().await;
        assert_eq!(begin.elapsed(), SECOND * 2);
    }

    #[tokio::test(start_paused = true)]
    async fn its_end_is_seen_at_once() {
        let begin = Instant::now();
        let (term, watch) = Term::until(begin + SECOND);
        let waiting = tokio::spawn(watch.over());
        term.end();
        assert!(waiting.await.is_ok());
        assert_eq!(begin.elapsed(), Duration::ZERO);
    }
}
