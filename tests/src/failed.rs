//! The failure of a case.

use std::fmt;
use std::panic::Location;

/// The result of a case.
pub(crate) type Outcome = Result<(), Failed>;

/// The reason why a case failed, and the place.
#[derive(Debug)]
pub(crate) struct Failed(String);

impl Failed {
    #[track_caller]
    pub(crate) fn new(what: impl fmt::Display) -> Self {
        Self(format!("{what} ({})", Location::caller()))
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Errors of these types end a case by `?`.
macro_rules! failures {
    ($($error:ty),* $(,)?) => {$(
        impl From<$error> for Failed {
            #[track_caller]
            fn from(error: $error) -> Self {
                Self::new(error)
            }
        }
    )*};
}

failures!(
    mlx5::Error,
    mlx5::BatchError,
    mlx5::ListError,
    mlx5::PostError,
    mlx5::PollError,
    mlx5::CancelError,
    mlx5::BindError,
    mlx5::CompletionError,
    mlx5::TransitionError,
    mlx5::ConnectError,
    mlx5::OutOfRange,
    mlx5::ethernet::EthernetError,
    mlx5::RemoteError,
    std::io::Error,
    String,
    &str,
);

impl<T> From<mlx5::DestroyError<T>> for Failed {
    #[track_caller]
    fn from(error: mlx5::DestroyError<T>) -> Self {
        Self::new(error)
    }
}

impl<T> From<mlx5::RegisterError<T>> for Failed {
    #[track_caller]
    fn from(error: mlx5::RegisterError<T>) -> Self {
        Self::new(error)
    }
}

impl<T> From<mlx5::ReregisterError<T>> for Failed {
    #[track_caller]
    fn from(error: mlx5::ReregisterError<T>) -> Self {
        Self::new(error)
    }
}
