//! One-time tokens beside the records: one key per token, one script per step.

use std::time::Duration;

use ::redis::{RedisError, Value};

use super::script::{self, Invocation, Step};
use super::steps::millis;
use super::{RedisStore, error, record};
use crate::error::{Effect, Error};
use crate::key::RecordId;
use crate::protocol::Owner;

/// How long an expired token is told from one that never was.
const REMEMBERED: Duration = Duration::from_secs(3600);

/// What a script says of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Good,
    Unknown,
    Foreign,
    Used,
    Expired,
    InUse,
}

/// What is to be done with a token that is good.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Take {
    Look,
    Hold(Duration),
    Use,
}

/// What is to be done with one that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Use,
    Free,
    Renew(Duration),
}

impl RedisStore {
    pub(crate) async fn issue_token(
        &self,
        id: RecordId,
        binding: RecordId,
        ttl: u64,
    ) -> Result<(), Error> {
        let (ttl, remembered) = (ttl.to_string(), millis(REMEMBERED).to_string());
        let arguments = [
            binding.as_bytes().as_slice(),
            ttl.as_bytes(),
            remembered.as_bytes(),
        ];
        let step = self.token_step(&script::TOKEN_ISSUE, id, &arguments, error::before);
        step.await.map(drop)
    }

    pub(crate) async fn take_token(
        &self,
        id: RecordId,
        binding: RecordId,
        owner: Owner,
        take: Take,
    ) -> Result<Said, Error> {
        let what = match take {
            Take::Look => "look".to_owned(),
            Take::Use => "use".to_owned(),
            Take::Hold(time) => millis(time).max(1).to_string(),
        };
        let arguments = [
            binding.as_bytes().as_slice(),
            owner.as_bytes(),
            what.as_bytes(),
        ];
        let step = self.token_step(&script::TOKEN_TAKE, id, &arguments, error::before);
        step.await
    }

    pub(crate) async fn end_token(
        &self,
        id: RecordId,
        owner: Owner,
        end: End,
    ) -> Result<Said, Error> {
        let what = match end {
            End::Use => "use".to_owned(),
            End::Free => "free".to_owned(),
            End::Renew(time) => millis(time).max(1).to_string(),
        };
        let arguments = [owner.as_bytes().as_slice(), what.as_bytes()];
        let step = self.token_step(&script::TOKEN_END, id, &arguments, error::after);
        step.await
    }

    /// Says whether there was one.
    pub(crate) async fn drop_token(&self, id: RecordId) -> Result<bool, Error> {
        let key = self.token_key(id);
        let mut gone = ::redis::cmd("DEL");
        gone.arg(&key);
        match self.inner.link.send(&key, gone, self.deadline()).await {
            Ok(Value::Int(count)) => Ok(count > 0),
            Ok(_) => Err(error::strange("something unknown")),
            Err(failed) => Err(error::after(failed)),
        }
    }

    pub(crate) fn token_key(&self, id: RecordId) -> Vec<u8> {
        record::key(&format!("{}token:", self.inner.prefix), id)
    }

    async fn token_step(
        &self,
        step: &'static Step,
        id: RecordId,
        arguments: &[&[u8]],
        failed: fn(RedisError) -> Error,
    ) -> Result<Said, Error> {
        let invocation = Invocation {
            step,
            key: &self.token_key(id),
            arguments,
        };
        let (answer, enough) = self
            .secured(&invocation, self.deadline())
            .await
            .map_err(failed)?;
        let said = match answer {
            Value::Int(0) => Said::Good,
            Value::Int(1) => Said::Unknown,
            Value::Int(2) => Said::Foreign,
            Value::Int(3) => Said::Used,
            Value::Int(4) => Said::Expired,
            Value::Int(5) => Said::InUse,
            _ => return Err(error::strange("something unknown")),
        };
        if said == Said::Good {
            enough.map_err(|few| Error::from(few).effect_is(Effect::Unknown))?;
        }
        Ok(said)
    }
}
