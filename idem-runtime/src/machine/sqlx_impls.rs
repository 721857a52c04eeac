//! A state as text in a statement and in a row. A derive cannot see which features the runtime was
//! built with, so it calls a macro that can.

/// `Type`, `Encode` and `Decode` of every database that has text.
#[doc(hidden)]
#[macro_export]
macro_rules! __impl_state_sqlx {
    ($state:ident) => {
        #[automatically_derived]
        impl<DB: $crate::__private::sqlx::Database> $crate::__private::sqlx::Type<DB> for $state
        where
            ::core::primitive::str: $crate::__private::sqlx::Type<DB>,
        {
            fn type_info() -> DB::TypeInfo {
                <::core::primitive::str as $crate::__private::sqlx::Type<DB>>::type_info()
            }

            fn compatible(ty: &DB::TypeInfo) -> ::core::primitive::bool {
                <::core::primitive::str as $crate::__private::sqlx::Type<DB>>::compatible(ty)
            }
        }

        #[automatically_derived]
        impl<'q, DB: $crate::__private::sqlx::Database> $crate::__private::sqlx::Encode<'q, DB>
            for $state
        where
            &'q ::core::primitive::str: $crate::__private::sqlx::Encode<'q, DB>,
        {
            fn encode_by_ref(
                &self,
                buffer: &mut <DB as $crate::__private::sqlx::Database>::ArgumentBuffer,
            ) -> ::core::result::Result<
                $crate::__private::sqlx::encode::IsNull,
                $crate::__private::sqlx::error::BoxDynError,
            > {
                let text: &'q ::core::primitive::str = $crate::__private::State::as_str(*self);
                $crate::__private::sqlx::Encode::<'q, DB>::encode(text, buffer)
            }
        }

        #[automatically_derived]
        impl<'r, DB: $crate::__private::sqlx::Database> $crate::__private::sqlx::Decode<'r, DB>
            for $state
        where
            &'r ::core::primitive::str: $crate::__private::sqlx::Decode<'r, DB>,
        {
            fn decode(
                value: <DB as $crate::__private::sqlx::Database>::ValueRef<'r>,
            ) -> ::core::result::Result<Self, $crate::__private::sqlx::error::BoxDynError> {
                let text = <&'r ::core::primitive::str as $crate::__private::sqlx::Decode<
                    'r,
                    DB,
                >>::decode(value)?;
                ::core::result::Result::Ok($crate::__private::parse_state::<$state>(text)?)
            }
        }

        $crate::__impl_state_array! { $state }
    };
}

/// For `status = ANY($1)`.
#[cfg(feature = "postgres")]
#[doc(hidden)]
#[macro_export]
macro_rules! __impl_state_array {
    ($state:ident) => {
        #[automatically_derived]
        impl $crate::__private::sqlx::postgres::PgHasArrayType for $state {
            fn array_type_info() -> $crate::__private::sqlx::postgres::PgTypeInfo {
                <&::core::primitive::str as
                            $crate::__private::sqlx::postgres::PgHasArrayType>::array_type_info()
            }
        }
    };
}

/// Arrays are of Postgres.
#[cfg(not(feature = "postgres"))]
#[doc(hidden)]
#[macro_export]
macro_rules! __impl_state_array {
    ($state:ident) => {};
}
