//! One-time tokens that a call uses up.

use std::future::Future;
#[cfg(feature = "_sqlx")]
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use super::{Access, Contract, Driven, Driver, Run, conclude, settle};
use crate::error::{Error, ErrorKind};
use crate::operation::Call;
use crate::outcome::CodecId;
#[cfg(feature = "_sqlx")]
use crate::store::sql::Dialect;
use crate::token::TokenError;

/// What guards the reservation of a running call, and with it the call's token.
pub trait Guard {
    /// Through which the token is reached.
    #[doc(hidden)]
    type Conn: Send;
}

/// A transaction does.
#[cfg(feature = "_sqlx")]
#[derive(Debug)]
pub struct InTransaction<D>(PhantomData<D>);

#[cfg(feature = "_sqlx")]
impl<D: Dialect> Guard for InTransaction<D> {
    type Conn = D::Connection;
}

/// A lease does.
#[derive(Debug)]
pub struct WithLease;

impl WithLease {
    /// Nothing is reached through it.
    pub(super) fn nothing() -> &'static mut Self {
        // Of no size: nothing is allocated, nothing leaks.
        Box::leak(Box::new(Self))
    }
}

impl Guard for WithLease {
    type Conn = Self;
}

/// A token and what it is to be good for.
#[derive(Clone, Copy)]
#[allow(missing_debug_implementations, reason = "a token is a secret")]
pub struct Wanted<'a> {
    /// As it was handed out.
    pub token: &'a str,
    /// Who.
    pub subject: &'a str,
    /// What.
    pub operation: &'a str,
}

/// Tokens that a call guarded by `G` uses up if it succeeds, and only then.
#[diagnostic::on_unimplemented(
    message = "tokens of `{Self}` cannot be used up together with this call",
    label = "kept elsewhere than the call is guarded, or no tokens at all",
    note = "a call in a transaction takes `SignedTokens` or `StoredTokens`, which are kept in the same database",
    note = "a call with a lease takes `MemoryTokens` or `RedisTokens`, which hold the token while the body runs"
)]
pub trait Admits<G: Guard> {
    #[doc(hidden)]
    type Permit: Permit<G>;

    /// Takes the token for a call that begins.
    #[doc(hidden)]
    fn admit(
        &self,
        conn: &mut G::Conn,
        wanted: Wanted<'_>,
    ) -> impl Future<Output = Result<Self::Permit, TokenError>> + Send;
}

#[diagnostic::do_not_recommend]
impl<G: Guard, T: Admits<G> + ?Sized> Admits<G> for &T {
    type Permit = T::Permit;

    fn admit(
        &self,
        conn: &mut G::Conn,
        wanted: Wanted<'_>,
    ) -> impl Future<Output = Result<T::Permit, TokenError>> + Send {
        (**self).admit(conn, wanted)
    }
}

#[diagnostic::do_not_recommend]
impl<G: Guard, T: Admits<G> + ?Sized> Admits<G> for std::sync::Arc<T> {
    type Permit = T::Permit;

    fn admit(
        &self,
        conn: &mut G::Conn,
        wanted: Wanted<'_>,
    ) -> impl Future<Output = Result<T::Permit, TokenError>> + Send {
        (**self).admit(conn, wanted)
    }
}

/// The error type of a function that uses a one-time token up.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot carry the refusal of a token",
    label = "`From<TokenError>` is missing for the function's error type `{Self}`",
    note = "add a variant for it, for example `#[error(transparent)] Token(#[from] idem::token::TokenError)`"
)]
pub trait TokenRefusal: From<TokenError> {}

#[diagnostic::do_not_recommend]
impl<E: From<TokenError>> TokenRefusal for E {}

/// A token that was taken for a running call.
pub trait Permit<G: Guard>: Send {
    /// The body has succeeded.
    #[doc(hidden)]
    fn use_up(self) -> impl Future<Output = Result<(), TokenError>> + Send;

    /// It has not. What cannot be given back now is free when the guard's time is over.
    #[doc(hidden)]
    fn give_back(self, conn: &mut G::Conn) -> impl Future<Output = ()> + Send;
}

/// Where one run keeps its token.
#[derive(Debug)]
pub struct PermitSlot<P> {
    permit: Mutex<Option<P>>,
    refused: AtomicBool,
}

impl<P> Default for PermitSlot<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P> PermitSlot<P> {
    /// Without one.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            permit: Mutex::new(None),
            refused: AtomicBool::new(false),
        }
    }

    /// Takes the token.
    ///
    /// # Errors
    /// It is refused, or cannot be asked for.
    ///
    /// # Cancel safety
    /// In a transaction: roll it back. With a lease: what may have been held is given back in the
    /// background, or is free when the hold's lease is over.
    pub async fn admit<A: Access, T: Admits<A::Guard, Permit = P>>(
        &self,
        access: &mut A,
        tokens: &T,
        wanted: Wanted<'_>,
    ) -> Result<(), TokenError> {
        let permit = tokens.admit(access.guard(), wanted).await?;
        *self.permit.lock().unwrap_or_else(PoisonError::into_inner) = Some(permit);
        Ok(())
    }

    /// The function's error for a token that was not accepted.
    pub fn refuse<E: TokenRefusal>(&self, error: TokenError) -> E {
        self.refused.store(true, Ordering::Relaxed);
        E::from(error)
    }

    fn take(self) -> Option<P> {
        self.permit
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R> Driven<R> {
    /// Tells the refusal of a token from a result of the body's.
    pub fn unless_refused_by<P>(self, slot: &PermitSlot<P>) -> Self {
        match self {
            Self::Finished(result) if slot.refused.load(Ordering::Relaxed) => Self::Known(result),
            driven => driven,
        }
    }
}

/// As [`leave`](super::leave); a body that succeeded has used the call's token up, any other end gives it back.
///
/// # Cancel safety
/// As [`leave`](super::leave). With a lease: a token that was to be used up is used up in the background, and is
/// never given back.
pub async fn leave_with_token<T, E, A: Access, P: Permit<A::Guard>>(
    access: &mut A,
    mut run: A::Run,
    driven: Driven<Result<T, E>>,
    slot: PermitSlot<P>,
    contract: &Contract<T, E>,
) -> Result<T, E> {
    let succeeded = matches!(driven, Driven::Finished(Ok(_)));
    let lost = matches!(driven, Driven::LeaseLost(_));
    // From here on the outcome is recorded whatever becomes of this future.
    let (settlement, verdict) = conclude(&mut run, driven, contract);
    let spent = match slot.take() {
        Some(permit) if succeeded => spend(permit, run.driver())
            .await
            .map_err(|cause| Unspent::new(run.call(), cause)),
        // Its effect is not known; the hold does as it does when the call is dropped.
        Some(permit) if lost => {
            drop(permit);
            Ok(())
        }
        Some(permit) => {
            permit.give_back(access.guard()).await;
            Ok(())
        }
        None => Ok(()),
    };
    let answer = settle(access, run, settlement, verdict, contract).await;
    match (answer, spent) {
        // Recorded all the same: a repeat of this call is answered.
        (Ok(value), Err(unspent)) => contract.refuse(unspent.carrying(contract, &value)),
        (answer, _) => answer,
    }
}

/// Under the call's lease, if it has one: nobody else is to begin meanwhile.
async fn spend<G: Guard, P: Permit<G>>(
    permit: P,
    driver: Driver,
) -> Result<(), Option<TokenError>> {
    match driver.drive(permit.use_up()).await {
        Driven::Finished(used) => used.map_err(Some),
        Driven::Known(_) | Driven::LeaseLost(_) => Err(None),
    }
}

/// A token that could not be marked although the body has succeeded.
struct Unspent {
    error: Error,
    codec: CodecId,
    schema: u32,
}

impl Unspent {
    fn new(call: &Call, cause: Option<TokenError>) -> Self {
        let error = call
            .error(ErrorKind::EffectDoneNotRecorded)
            .detail("the outcome is recorded, and the token could not be marked as used");
        Self {
            error: match cause {
                Some(cause) => error.caused_by(cause),
                None => error,
            },
            codec: call.codec(),
            schema: call.schema(),
        }
    }

    fn carrying<T, E>(self, contract: &Contract<T, E>, value: &T) -> Error {
        match contract.encode_as(self.codec, self.schema, value) {
            Ok(outcome) => self.error.carrying(outcome),
            Err(_) => self.error,
        }
    }
}
