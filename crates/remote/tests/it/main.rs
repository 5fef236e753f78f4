//! Integration tests of mdl-remote: transfers, partial repositories, storage in buckets, random histories.

mod aged;
mod model;
mod object_storage;
mod partial;
mod pruned;
mod support;
mod transfer;
mod unsafe_objects;
