//! The snippets of the README and of the guide in `docs/`, compiled and run as documentation tests.
#![cfg_attr(doctest, doc = include_str!("../README.md"))]

/// Includes chapters of the guide, one module each.
#[cfg(doctest)]
macro_rules! chapters {
    ($($name:ident)*) => {$(
        #[doc = include_str!(concat!("../docs/src/", stringify!($name), ".md"))]
        mod $name {}
    )*};
}

#[cfg(doctest)]
chapters!(introduction agent client testing proxy editors exchange delegation protocol_2 remote unstable security);
