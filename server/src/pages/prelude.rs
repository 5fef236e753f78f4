//! What nearly every page takes: what routes take, the layout, text, branches and tags.

pub(super) use crate::{
    pages::{
        Start,
        about::About,
        layout::{Frame, Tab, after, base, page, pager, table},
        refs::{self, Names, shortened},
        text,
    },
    registry::RepoName,
    request::prelude::*,
};
pub(super) use axum::Extension;
pub(super) use maud::{Markup, html};
