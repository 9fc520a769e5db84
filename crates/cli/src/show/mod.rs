//! A transcript as an HTML page.

mod data;
mod html;
mod page;

pub(crate) use html::page;
