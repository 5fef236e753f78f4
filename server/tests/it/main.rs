//! Integration tests of the server: its routes called directly, and over a socket.

mod aged;
mod api_commits;
mod api_jobs;
mod api_read;
mod api_uploads;
mod content;
mod hub;
mod pages;
mod route_table;
mod support;
mod sync;
mod ten_thousand;
