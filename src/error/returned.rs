//! Errors of operations that take an object and return it when they fail.

use super::Error;
use std::fmt;
use std::sync::{Mutex, PoisonError};

macro_rules! returned {
    ($($(#[$doc:meta])* $name:ident;)+) => {$(
        $(#[$doc])*
        // The lock is never contended: it makes the error `Sync` whether or not the object is, so
        // that it converts to `Box<dyn std::error::Error + Send + Sync>`.
        pub struct $name<T>(Box<(Mutex<T>, Error)>);

        impl<T> $name<T> {
            pub(crate) fn new(object: T, error: Error) -> Self {
                Self(Box::new((Mutex::new(object), error)))
            }

            /// Returns the reason for the failure.
            pub fn error(&self) -> &Error {
                &self.0.1
            }

            /// Returns the object.
            pub fn into_inner(self) -> T {
                self.into_parts().0
            }

            /// Returns the reason for the failure, and drops the object.
            pub fn into_error(self) -> Error {
                self.into_parts().1
            }

            /// Returns the object, and the reason for the failure.
            pub fn into_parts(self) -> (T, Error) {
                let (object, error) = *self.0;
                (object.into_inner().unwrap_or_else(PoisonError::into_inner), error)
            }

            /// Converts the object.
            pub fn map<U>(self, convert: impl FnOnce(T) -> U) -> $name<U> {
                let (object, error) = self.into_parts();
                $name::new(convert(object), error)
            }
        }

        impl<T> fmt::Debug for $name<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_tuple(stringify!($name)).field(self.error()).finish()
            }
        }

        impl<T> fmt::Display for $name<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self.error(), f)
            }
        }

        impl<T> std::error::Error for $name<T> {
            fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
                Some(self.error())
            }
        }

        /// Drops the object.
        impl<T> From<$name<T>> for Error {
            fn from(error: $name<T>) -> Self {
                error.into_error()
            }
        }
    )+};
}

returned! {
    /// An object could not be destroyed. The error contains the object, which works as before.
    ///
    /// Dropping the error drops the object, which tries once more to destroy it. The memory of an
    /// object that the kernel does not destroy is kept until the context closes: see
    /// [`Context::leaked`](crate::Context::leaked).
    ///
    /// ```no_run
    /// # fn f(pd: mlx5::ProtectionDomain) -> Result<(), mlx5::Error> {
    /// if let Err(failed) = pd.destroy() {
    ///     println!("{failed}");
    ///     let pd = failed.into_inner();
    ///     // Destroy what belongs to it, then try again.
    ///     pd.destroy()?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    DestroyError;
    /// A memory region could not be reregistered. The error contains it.
    ReregisterError;
    /// Memory that the caller handed over could not be registered. The error contains it.
    RegisterError;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::error::Error as _;

    fn busy() -> DestroyError<Cell<u32>> {
        DestroyError::new(Cell::new(7), Error::busy("destroy_cq", "queue pairs complete here"))
    }

    #[test]
    fn the_object_comes_back() {
        let (object, error) = busy().into_parts();
        assert_eq!((object.get(), error.operation()), (7, "destroy_cq"));
        assert_eq!(busy().map(Cell::into_inner).into_inner(), 7);
        assert_eq!(busy().into_error(), error);
    }

    #[test]
    fn an_error_says_why_and_converts() {
        let text = busy().to_string();
        assert!(text.contains("queue pairs complete here"), "{text}");
        assert_eq!(busy().source().map(ToString::to_string), Some(text.clone()));
        assert!(format!("{:?}", busy()).contains("destroy_cq"));
        fn boxed() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
            Err(busy())?;
            Ok(())
        }
        fn plain() -> Result<(), Error> {
            Err(busy())?;
            Ok(())
        }
        assert_eq!(boxed().unwrap_err().to_string(), text);
        assert_eq!(plain().unwrap_err().to_string(), text);
    }
}
