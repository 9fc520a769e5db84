//! A transcript as an HTML page.

mod html;

pub(crate) use html::page;
