//! What is next, from what is recorded. No I/O.

use super::error::INTERRUPTED;
use super::state::{Cause, SagaState, StepRow, StepState};

/// What there is of a step in the definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Traits {
    /// Its effect is elsewhere, not in the transaction that records it.
    pub(super) outside: bool,
    /// It has a compensation.
    pub(super) undo: bool,
    /// It had one when the saga was begun.
    pub(super) had_undo: bool,
}

/// What to undo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// The step is done; its result is recorded.
    Done,
    /// Nobody knows whether it had its effect.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Run this step.
    Run(usize),
    /// Run the compensation of this step.
    Undo(usize, Effect),
    /// This step, or its compensation, cannot be run by this build; a person has to decide.
    Stuck { at: usize, undo: bool, cause: Cause },
    /// Nothing is left to do.
    End(SagaState),
}

/// Forwards: the first step that is not done. Backwards: the last step that has something to undo.
pub(super) fn next(state: SagaState, steps: &[(Traits, StepRow)]) -> Next {
    match state {
        SagaState::Running => {
            let open = steps
                .iter()
                .position(|(_, row)| row.state != StepState::Done);
            open.map_or(Next::End(SagaState::Completed), |at| {
                let (traits, row) = &steps[at];
                if may_have_happened(row) && !traits.outside {
                    // Run in a transaction it would happen a second time.
                    let cause = Cause::EffectUnknown;
                    return Next::Stuck {
                        at,
                        undo: false,
                        cause,
                    };
                }
                Next::Run(at)
            })
        }
        SagaState::Compensating => {
            let left = steps.iter().enumerate().rev();
            let undo = left.filter_map(|(at, (traits, row))| Some((at, to_undo(*traits, row)?)));
            let last = undo.take(1).next();
            last.map_or(Next::End(SagaState::Compensated), |(at, effect)| {
                let traits = steps[at].0;
                let stuck = |cause| Next::Stuck {
                    at,
                    undo: true,
                    cause,
                };
                match effect {
                    _ if !traits.undo => stuck(Cause::CompensationMissing),
                    Effect::Unknown if !traits.outside => stuck(Cause::EffectUnknown),
                    effect => Next::Undo(at, effect),
                }
            })
        }
        ended => Next::End(ended),
    }
}

/// The row, with one attempt more, of what the owner before was at: it is gone and has let nothing go.
/// An attempt outside is counted where it is recorded as begun; one in a transaction leaves no trace of
/// its own.
pub(super) fn broken_off(state: SagaState, steps: &[(Traits, StepRow)]) -> Option<StepRow> {
    let (at, undo) = match next(state, steps) {
        Next::Run(at) => (at, false),
        Next::Undo(at, _) => (at, true),
        Next::Stuck { .. } | Next::End(_) => return None,
    };
    let (traits, row) = steps.get(at)?;
    if traits.outside {
        return None;
    }
    let mut row = row.clone();
    if undo {
        row.state = StepState::CompensationFailed;
        row.undo_attempts = row.undo_attempts.saturating_add(1);
    } else {
        row.attempts = row.attempts.saturating_add(1);
    }
    row.error = Some(INTERRUPTED.to_owned());
    Some(row)
}

/// Whether an attempt may have had its effect that is not recorded. A transactional step never leaves
/// such a row: it is unknown whatever kind the step is of now.
fn may_have_happened(row: &StepRow) -> bool {
    row.state == StepState::Started || (row.state == StepState::Failed && row.unknown)
}

fn to_undo(traits: Traits, row: &StepRow) -> Option<Effect> {
    let declared = traits.undo || traits.had_undo;
    match row.state {
        StepState::Pending | StepState::Compensated => None,
        StepState::Done => (declared && !row.left_alone).then_some(Effect::Done),
        StepState::Started | StepState::Failed => {
            (declared && may_have_happened(row)).then_some(Effect::Unknown)
        }
        StepState::Compensating | StepState::CompensationFailed => Some(match row.result {
            Some(_) => Effect::Done,
            None => Effect::Unknown,
        }),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    const STATES: [StepState; 7] = [
        StepState::Pending,
        StepState::Started,
        StepState::Done,
        StepState::Failed,
        StepState::Compensating,
        StepState::Compensated,
        StepState::CompensationFailed,
    ];

    fn row(state: StepState, unknown: bool, result: bool) -> StepRow {
        StepRow {
            state,
            unknown,
            result: result.then(|| Bytes::from_static(b"r")),
            ..StepRow::pending(0, "s")
        }
    }

    fn outside(row: StepRow) -> (Traits, StepRow) {
        (declared(true, true), row)
    }

    fn declared(outside: bool, undo: bool) -> Traits {
        Traits {
            outside,
            undo,
            had_undo: undo,
        }
    }

    #[test]
    fn forwards_is_the_first_step_that_is_not_done() {
        for state in STATES {
            let steps = [
                outside(row(StepState::Done, false, true)),
                outside(row(state, false, false)),
                outside(row(StepState::Pending, false, false)),
            ];
            let first = if state == StepState::Done { 2 } else { 1 };
            assert_eq!(next(SagaState::Running, &steps), Next::Run(first));
        }
        let done = [outside(row(StepState::Done, false, true))];
        assert_eq!(
            next(SagaState::Running, &done),
            Next::End(SagaState::Completed)
        );
    }

    #[test]
    fn only_what_had_or_may_have_had_an_effect_is_undone() {
        use StepState as S;
        for (state, unknown, result, outside, expected) in [
            (S::Pending, false, false, true, None),
            (S::Started, false, false, true, Some(Effect::Unknown)),
            (S::Started, false, false, false, Some(Effect::Unknown)),
            (S::Done, false, true, true, Some(Effect::Done)),
            (S::Done, false, true, false, Some(Effect::Done)),
            (S::Failed, false, false, true, None),
            (S::Failed, true, false, true, Some(Effect::Unknown)),
            (S::Failed, true, false, false, Some(Effect::Unknown)),
            (S::Compensating, false, true, true, Some(Effect::Done)),
            (S::Compensating, true, false, true, Some(Effect::Unknown)),
            (S::CompensationFailed, false, true, true, Some(Effect::Done)),
            (
                S::CompensationFailed,
                true,
                false,
                true,
                Some(Effect::Unknown),
            ),
            (S::Compensated, false, true, true, None),
        ] {
            let row = row(state, unknown, result);
            assert_eq!(
                to_undo(declared(outside, true), &row),
                expected,
                "{row:?} outside: {outside}"
            );
            let begun = matches!(state, S::Compensating | S::CompensationFailed);
            let without = to_undo(declared(outside, false), &row);
            assert_eq!(without, expected.filter(|_| begun), "{row:?}");
        }
    }

    #[test]
    fn what_a_changed_declaration_cannot_tell_is_stuck_and_never_nothing() {
        use StepState as S;
        let unknown = [(S::Started, false), (S::Started, true), (S::Failed, true)];
        for (state, unknown) in unknown {
            let steps = [(declared(false, true), row(state, unknown, false))];
            let stuck = |undo| Next::Stuck {
                at: 0,
                undo,
                cause: Cause::EffectUnknown,
            };
            assert_eq!(next(SagaState::Compensating, &steps), stuck(true));
            if state == S::Started {
                assert_eq!(next(SagaState::Running, &steps), stuck(false));
            }
        }
        for (outside, state) in [(true, S::Started), (true, S::Done), (false, S::Done)] {
            let traits = Traits {
                outside,
                undo: false,
                had_undo: true,
            };
            let steps = [(traits, row(state, false, state == S::Done))];
            let missing = Next::Stuck {
                at: 0,
                undo: true,
                cause: Cause::CompensationMissing,
            };
            assert_eq!(next(SagaState::Compensating, &steps), missing);
        }
        // The other way round: a transactional step leaves no doubt behind.
        let mut tried = row(S::Pending, false, false);
        tried.attempts = 3;
        let steps = [outside(row(S::Done, false, true)), outside(tried)];
        assert_eq!(next(SagaState::Running, &steps), Next::Run(1));
        let undo = Next::Undo(0, Effect::Done);
        assert_eq!(next(SagaState::Compensating, &steps), undo);
    }

    #[test]
    fn what_was_there_before_is_not_undone() {
        let mut there = outside(row(StepState::Done, false, true));
        there.1.left_alone = true;
        let end = Next::End(SagaState::Compensated);
        assert_eq!(next(SagaState::Compensating, &[there]), end);
    }

    #[test]
    fn compensation_runs_backwards_and_does_not_overtake_a_failed_one() {
        let done = || outside(row(StepState::Done, false, true));
        let mut steps = vec![
            done(),
            done(),
            outside(row(StepState::Started, true, false)),
        ];
        let state = SagaState::Compensating;
        assert_eq!(next(state, &steps), Next::Undo(2, Effect::Unknown));
        steps[2].1.state = StepState::CompensationFailed;
        assert_eq!(next(state, &steps), Next::Undo(2, Effect::Unknown));
        for at in (0..3).rev() {
            steps[at].1.state = StepState::Compensated;
            let expected = match at {
                0 => Next::End(SagaState::Compensated),
                at => Next::Undo(at - 1, Effect::Done),
            };
            assert_eq!(next(state, &steps), expected);
        }
    }

    #[test]
    fn what_a_dead_owner_was_at_is_counted_once() {
        let inside = |row| (declared(false, true), row);
        let done = || inside(row(StepState::Done, false, true));
        let mut failed = row(StepState::Pending, false, false);
        failed.attempts = 2;
        let steps = [done(), inside(failed)];
        let counted = broken_off(SagaState::Running, &steps).unwrap();
        assert_eq!((counted.state, counted.attempts), (StepState::Pending, 3));
        assert_eq!(
            (counted.undo_attempts, counted.error.as_deref()),
            (0, Some(INTERRUPTED))
        );

        let counted = broken_off(SagaState::Compensating, &[done()]).unwrap();
        assert_eq!(counted.state, StepState::CompensationFailed);
        assert_eq!((counted.attempts, counted.undo_attempts), (0, 1));
        assert_eq!(to_undo(done().0, &counted), Some(Effect::Done));

        assert!(broken_off(SagaState::Running, &[done()]).is_none());
        for state in STATES {
            let steps = [outside(row(state, false, false))];
            assert!(broken_off(SagaState::Running, &steps).is_none());
            assert!(broken_off(SagaState::Compensating, &steps).is_none());
        }
    }

    #[test]
    fn what_has_ended_stays_ended() {
        for state in [SagaState::Completed, SagaState::Compensated] {
            let open = [outside(row(StepState::Started, true, false))];
            assert_eq!(next(state, &open), Next::End(state));
        }
    }
}
