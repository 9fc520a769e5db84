//! Showing a transcript as a page.

mod data;
mod fold;
mod html;

pub(crate) use html::page;
