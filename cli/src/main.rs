//! The mdl command line.

fn main() {}
