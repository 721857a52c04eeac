//! Every kind of error, read as a stranger reads it.

use super::*;

/// Every kind; the match makes a new one be added here.
const ALL: &[ErrorKind] = {
    use ErrorKind as K;
    const fn known(kind: ErrorKind) {
        match kind {
            K::EmptyKeyPart | K::KeyTooLong | K::InvalidTtl | K::InvalidLease => {}
            K::FingerprintFailed | K::InProgress | K::FingerprintMismatch => {}
            K::Reentrant | K::RetryTransaction | K::TransactionEnded => {}
            K::StoreUnavailable | K::StoreRefused | K::StoreExhausted => {}
            K::CommitRefused | K::Schema | K::CommitUnknown | K::LostOwnership => {}
            K::LeaseExpired | K::EffectDoneNotRecorded | K::OutcomeNotRecordable => {}
            K::OutcomeTooLarge | K::OutcomeGone | K::OutcomeUndecodable => {}
            K::Abandoned | K::DuplicateScope | K::UnknownState | K::StateNotChanged => {}
            K::KeyMismatch | K::TableMismatch | K::NotAbandoned | K::UnknownStep => {}
        }
    }
    known(K::EmptyKeyPart);
    &[
        K::EmptyKeyPart,
        K::KeyMismatch,
        K::TableMismatch,
        K::NotAbandoned,
        K::UnknownStep,
        K::KeyTooLong,
        K::InvalidTtl,
        K::InvalidLease,
        K::FingerprintFailed,
        K::InProgress,
        K::FingerprintMismatch,
        K::Reentrant,
        K::RetryTransaction,
        K::TransactionEnded,
        K::StoreUnavailable,
        K::StoreRefused,
        K::StoreExhausted,
        K::CommitRefused,
        K::Schema,
        K::CommitUnknown,
        K::LostOwnership,
        K::LeaseExpired,
        K::EffectDoneNotRecorded,
        K::OutcomeNotRecordable,
        K::OutcomeTooLarge,
        K::OutcomeGone,
        K::OutcomeUndecodable,
        K::Abandoned,
        K::DuplicateScope,
        K::UnknownState,
        K::StateNotChanged,
    ]
};

#[test]
fn every_kind_says_what_happened_what_it_means_and_what_to_do() {
    let mut seen = std::collections::HashSet::new();
    for kind in ALL {
        let (what, advice) = kind.text();
        assert!(!what.is_empty() && !advice.is_empty(), "{kind:?}");
        assert!(seen.insert(what), "{kind:?} says what another one says");
        let error = Error::new(*kind);
        let effect = match error.effect() {
            Effect::None => "effect: none",
            Effect::Done => "effect: done",
            Effect::Unknown => "effect: unknown",
        };
        let text = error.to_string();
        assert!(text.contains(what) && text.contains(effect), "{text}");
        // What is done is not asked for again, and what had no effect never claims one.
        if error.effect() == Effect::Done {
            assert_eq!(error.retry(), Retry::Never, "{kind:?}");
        }
        if error.retry() == Retry::NewTransaction {
            assert_eq!(error.effect(), Effect::None, "{kind:?}");
        }
    }
    assert_eq!(seen.len(), ALL.len());
}

#[test]
fn no_text_shows_a_key_unless_it_is_to_be_shown() {
    let key = "card:4111-1111-1111-1111";
    for kind in ALL {
        for shown in [false, true] {
            let error = Error::new(*kind).detail("a detail");
            let id = RecordId::new("", "pay", &[], key);
            let error = error.at("pay", Some(key), shown, id);
            assert_eq!(error.key(), Some(key));
            for text in [
                error.to_string(),
                format!("{error:?}"),
                format!("{error:#?}"),
            ] {
                assert_eq!(text.contains(key), shown, "{text}");
                assert!(text.contains("pay"), "{text}");
            }
        }
    }
}
