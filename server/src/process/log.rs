//! The server's log, on standard error.

use crate::options::LogFormat;
use std::io;
use tracing_subscriber::EnvFilter;

/// Environment variable with the log level: `debug`, `info`, `warn`, or by module.
const VARIABLE: &str = "MDL_LOG";

/// Starts logging, unless it was started.
pub(crate) fn start(format: LogFormat) {
    let filter = EnvFilter::try_from_env(VARIABLE).unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    let _ = match format {
        LogFormat::Text => builder.with_ansi(false).with_target(false).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
}
