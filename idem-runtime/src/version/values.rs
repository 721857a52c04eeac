//! The new values of an update's columns.

use sqlx::error::BoxDynError;
use sqlx::{Encode, Type};

use super::VersionDialect;
use crate::store::sql::guarded::Bound;

/// The new values of `N` columns: a tuple of as many, `(balance,)` for one.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not give the {N} column(s) of this update a value each",
    label = "not {N} value(s)",
    note = "give a tuple with one value for each column, in their order; `(value,)` for one column"
)]
pub trait Values<'t, D: VersionDialect, const N: usize> {
    #[doc(hidden)]
    fn bind(self, args: &mut Bound<D>) -> Result<(), BoxDynError>;
}

macro_rules! tuples {
    ($($n:literal: $($name:ident)*;)*) => {$(
        impl<'t, D: VersionDialect, $($name: Encode<'t, D> + Type<D>),*> Values<'t, D, $n>
            for ($($name,)*)
        {
            #[allow(non_snake_case, reason = "each value is named as its type parameter")]
            fn bind(self, args: &mut Bound<D>) -> Result<(), BoxDynError> {
                let ($($name,)*) = self;
                $(args.add($name)?;)*
                Ok(())
            }
        }
    )*};
}

tuples! {
    1: A; 2: A B; 3: A B C; 4: A B C F; 5: A B C F G; 6: A B C F G H; 7: A B C F G H I;
    8: A B C F G H I J; 9: A B C F G H I J K; 10: A B C F G H I J K L;
    11: A B C F G H I J K L M; 12: A B C F G H I J K L M P;
}

impl<D: VersionDialect> Values<'_, D, 0> for () {
    fn bind(self, _: &mut Bound<D>) -> Result<(), BoxDynError> {
        Ok(())
    }
}
