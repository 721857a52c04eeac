//! Names in scope at the attribute mean nothing to generated code, and the other way round.

use crate::support::{Failure, MemoryStore, idempotent};

/// Everything that generated code could be misled by.
mod decoys {
    #![allow(dead_code, non_camel_case_types, non_upper_case_globals)]

    use super::{Failure, MemoryStore, idempotent};

    mod core {}
    mod std {}
    mod idem {}
    mod serde {}
    pub struct Result;
    pub struct Option;
    pub struct Some;
    pub struct None;
    pub struct Ok;
    pub struct Err;
    pub struct Box;
    pub trait From {}
    pub trait Clone {}
    pub struct Call;
    pub struct Operation;
    const __key: u8 = 1;
    static __call: u8 = 1;

    #[idempotent(key = "{id}", ttl = "1d", store = store)]
    pub async fn decoyed(store: &MemoryStore, id: u8) -> ::core::result::Result<u8, Failure> {
        ::core::result::Result::Ok(id)
    }
}

#[tokio::test]
async fn paths_are_absolute() {
    assert_eq!(decoys::decoyed(&MemoryStore::new(), 1).await.unwrap(), 1);
}

#[allow(non_snake_case, clippy::used_underscore_binding)]
#[idempotent(key = "{__key}", ttl = "1d", store = store)]
async fn prefixed(store: &MemoryStore, __key: u8, __call: u8, __run: u8) -> Result<u8, Failure> {
    #[allow(clippy::items_after_statements)]
    fn __idem_here() -> u8 {
        1
    }
    let __result = __key + __call + __run;
    Ok(__result + __idem_here())
}

#[tokio::test]
async fn mac_01_even_prefixed_names_are_the_users() {
    assert_eq!(prefixed(&MemoryStore::new(), 1, 2, 3).await.unwrap(), 7);
}

mod reexport {
    pub mod inner {
        pub use ::idem as renamed;
    }
}

#[idempotent(key = "{id}", ttl = "1d", store = store, crate = crate::hygiene::reexport::inner::renamed)]
async fn through_a_reexport(store: &MemoryStore, id: u8) -> Result<u8, Failure> {
    Ok(id)
}

#[idempotent(key = "{id}", ttl = "1d", store = store, crate = "::idem")]
async fn by_name(store: &MemoryStore, id: u8) -> Result<u8, Failure> {
    Ok(id)
}

#[tokio::test]
async fn the_crate_may_be_found_elsewhere() {
    let store = MemoryStore::new();
    assert_eq!(through_a_reexport(&store, 1).await.unwrap(), 1);
    assert_eq!(by_name(&store, 2).await.unwrap(), 2);
}

macro_rules! operation {
    ($name:ident, $key:literal, $ttl:expr, $store:ident, $arg:ident: $ty:ty, $ret:ty, $body:block) => {
        #[idempotent(key = $key, ttl = $ttl, store = $store, crate = $crate::hygiene::reexport::inner::renamed)]
        async fn $name($store: &MemoryStore, $arg: $ty) -> $ret $body
    };
    ($name:ident($ty:ty)) => {
        #[idempotent(key(id), ttl = "1d", store = store)]
        async fn $name(store: &MemoryStore, id: $ty) -> Result<$ty, Failure> {
            let twice = id * 2;
            Ok(twice)
        }
    };
}

operation!(given, "{id}", "1d", store, id: u8, Result<u8, Failure>, { Ok(id) });
operation!(written(u16));

#[tokio::test]
async fn macros_may_write_annotated_functions() {
    let store = MemoryStore::new();
    assert_eq!(given(&store, 1).await.unwrap(), 1);
    assert_eq!(written(&store, 4).await.unwrap(), 8);
}
