//! Integration tests of mdl-objects.

mod canonical;
