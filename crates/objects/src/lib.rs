//! Ids and exact bytes of objects.
