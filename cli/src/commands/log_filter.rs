//! Options that filter versions: by time, author, message, metrics and what they touched.

use super::prelude::*;
use mdl_repo::{Expression, LogFilter, Selection, parse_time};
use std::time::{SystemTime, UNIX_EPOCH};

#[derive(Debug, clap::Args)]
pub struct FilterArgs {
    /// Only versions of this time or later: a date, a time, or an age such as 2h or '3 weeks ago'.
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Only versions of this time or earlier.
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Only versions whose author's name or address has this in it, in capitals or not.
    #[arg(long, value_name = "TEXT")]
    author: Option<String>,
    /// Only versions whose message has this in it, in capitals or not.
    #[arg(long, value_name = "TEXT")]
    grep: Option<String>,
    /// Only versions whose metrics are so: 'loss<2', 'loss<2 and (acc>=0.9 or step>1000)', 'not has(acc)'.
    #[arg(long, value_name = "EXPR")]
    metric: Option<String>,
    /// Only versions that touched what one of these matches: FILE, or FILE:TENSOR, as globs.
    #[arg(last = true, value_name = "GLOB")]
    globs: Vec<String>,
}

/// Milliseconds since 1970.
fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

pub fn expression(text: &str) -> Result<Expression> {
    Ok(Expression::parse(text).map_err(mdl_repo::ExpressionError::into_usage)?)
}

impl FilterArgs {
    pub fn read(&self) -> Result<LogFilter> {
        let now = now_ms();
        let time = |text: &Option<String>| text.as_deref().map(|t| parse_time(t, now)).transpose();
        Ok(LogFilter {
            since: time(&self.since)?,
            until: time(&self.until)?,
            author: self.author.clone(),
            grep: self.grep.clone(),
            metric: self.metric.as_deref().map(expression).transpose()?,
            touching: (!self.globs.is_empty()).then(|| Selection::new(&self.globs)).transpose()?,
        })
    }
}
