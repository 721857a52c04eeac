//! Makes service functions idempotent.
#[doc(hidden)]
pub use idem_runtime::__private;
pub use idem_runtime::*;
