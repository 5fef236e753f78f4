//! `mdl serve`: serves repositories over HTTP.

use super::prelude::*;
use crate::render::parse_size;
use clap::ValueEnum;
use mdl_repo::Protection;
use mdl_server::{Anonymous, IpNet, LogFormat, Options, Tls, auth::Scope, middleware::proxies::parse_network};
use std::{net::SocketAddr, time::Duration};

/// Serve repositories over HTTP
///
/// Repositories are the directories OWNER/NAME below --root (bare, or with a work tree); where --root is a repository
/// itself, it is served as local/NAME. Served are mdl's own API (/api/v1, docs/http-api.md), the Hugging Face Hub's
/// (set HF_ENDPOINT), git-lfs, and pages to look at.
///
/// As long as there never was a token and nothing but this machine can ask (a loopback address; no --public-url, --host
/// or --trusted-proxy), everyone on this machine may do everything. From the first token on (`mdl token
/// create`), those without one may only read repositories with the setting serve.anonymous_read, however many tokens
/// are left. The log's first line says which it is.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mdl serve --root models
  mdl token create --root models --name ci --repo 'ada/*' --scope write --expires 90d
  mdl serve --root models --listen 0.0.0.0:8443 --tls-cert cert.pem --tls-key key.pem
  mdl serve --storage s3://team-models --root /var/lib/mdl
  HF_ENDPOINT=http://127.0.0.1:7878 hf download ada/tiny-gpt --revision step-12000")]
pub struct Args {
    /// Directory with the repositories, as OWNER/NAME; or one repository.
    #[arg(long, value_name = "DIR", default_value = ".")]
    root: PathBuf,
    /// Serve the repositories of a bucket, at URL/OWNER/NAME, instead; --root then only holds the server's own
    /// directory. Any number of servers may share one bucket.
    #[arg(long, value_name = "URL")]
    storage: Option<String>,
    /// Address and port; port 0 takes a free one. The first line on standard output says which.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7878")]
    listen: SocketAddr,
    /// Certificate chain in PEM, for HTTPS.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Its key in PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// What callers without a token may do, everywhere.
    #[arg(long, value_name = "SCOPE")]
    anonymous: Option<Who>,
    /// Memory for decoding and for what is asked for often.
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = parse_size)]
    memory: u64,
    /// Disk for decoded files, and as much for what slow clients have not taken; 0 keeps none.
    #[arg(long, value_name = "SIZE", default_value = "16GiB", value_parser = parse_size)]
    cache: u64,
    /// The server's own directory: tokens, uploads under way, decoded files. Default: .mdl-serve below --root.
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Largest upload, and largest commit.
    #[arg(long, value_name = "SIZE", default_value = "1TiB", value_parser = parse_size)]
    max_upload: u64,
    /// Bytes that one repository may have on their way in (uploads, LFS objects that no version holds, packs); more
    /// get 507. Default: twice --max-upload.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    quota_repo: Option<u64>,
    /// Bytes that one token may have on their way in; callers without one are counted together. Default: twice
    /// --max-upload.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    quota_token: Option<u64>,
    /// Bytes a second at which a request's body must come, once it was waited for as long as --stall allows; 0: any.
    #[arg(long, value_name = "SIZE", default_value = "1KiB", value_parser = parse_size)]
    min_upload_rate: u64,
    /// Days that an LFS object stays that no version holds and that nothing asks for; 0: for ever.
    #[arg(long, value_name = "DAYS", default_value_t = 30)]
    keep_lfs: u32,
    /// Connections at a time; more wait.
    #[arg(long, value_name = "N", default_value_t = 1024)]
    max_connections: usize,
    /// Connections of one address (of IPv6: of one /64 network) at a time; more are refused. Default: a quarter of
    /// --max-connections, and any number for this machine's own addresses.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_connections_per_address: Option<u32>,
    /// Rights that the files the server makes do not get, in octal as `umask` has them: 077 keeps them to the server's
    /// user, 027 lets its group read.
    #[arg(long, value_name = "MODE", default_value = "077", value_parser = parse_umask)]
    umask: u32,
    /// Do without the sandbox, in which the server can open nothing but what it serves and its own directory (Linux
    /// with Landlock).
    #[arg(long)]
    no_sandbox: bool,
    /// Requests a second that one token (without one: address) may make on average; more get 429.
    #[arg(long, value_name = "N")]
    rate: Option<u32>,
    /// Seconds that requests under way may go on after the server was told to stop.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    grace: u64,
    /// Seconds that a client may send or take nothing in the middle of a request.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    stall: u64,
    /// Bytes a second that a client has to take (suffixes K, M, ...) where another waits for the memory that its
    /// answer is made in, and the disk has no room for the rest of it; one that takes less over ten seconds is cut
    /// off. 0: none is.
    #[arg(long, value_name = "SIZE", default_value = "64K", value_parser = parse_size)]
    min_download_rate: u64,
    /// How others reach this server, such as `https://models.example.org`: for links. Default: as they asked.
    #[arg(long, value_name = "URL")]
    public_url: Option<String>,
    /// A name by which this server is asked (repeatable). Without a token it answers to loopback names, the address it
    /// listens at, the public URL's host and these: other names may lead here by a trick of DNS.
    #[arg(long = "host", value_name = "NAME")]
    hosts: Vec<String>,
    /// A proxy, or a network of them, whose X-Forwarded-For or Forwarded says who asks (repeatable). Of others these
    /// count for nothing.
    #[arg(long = "trusted-proxy", value_name = "ADDRESS", value_parser = parse_network)]
    trusted_proxies: Vec<IpNet>,
    /// Tokens that are no good which one address may show in a minute; more get 429. 0: any number.
    #[arg(long, value_name = "N", default_value_t = 60)]
    token_failures: u32,
    /// Where who changed what is written, in JSON lines. Default: audit.jsonl in the server's own directory.
    #[arg(long, value_name = "FILE")]
    audit_log: Option<PathBuf>,
    /// Refuse everything that would change a repository.
    #[arg(long)]
    read_only: bool,
    /// Rules for protected branches and tags, in a TOML file: no force, signed only (docs/serve.md).
    #[arg(long, value_name = "FILE")]
    protect: Option<PathBuf>,
    /// Let webhooks go to addresses that are not public.
    #[arg(long)]
    private_webhooks: bool,
    /// How the log (on standard error) is written; MDL_LOG=debug tells more, MDL_LOG=warn less.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    log: Log,
}

const DAY: u64 = 24 * 3600;

/// A mode in octal digits.
fn parse_umask(text: &str) -> std::result::Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        // Its owner, the server, has to get at what it makes.
        Ok(mask) if mask & !0o077 == 0 => Ok(mask),
        _ => Err("rights of the group and of others in octal, such as 077 or 027".to_owned()),
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Who {
    /// Nothing, but reading what is open to all.
    None,
    /// Read everything.
    Read,
    /// Commit, too.
    Write,
    /// Everything.
    Admin,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Log {
    /// Lines for people.
    Text,
    /// A JSON document a line.
    Json,
}

impl Args {
    fn options(self) -> Result<Options> {
        let anonymous = self.anonymous.map(|who| match who {
            Who::None => Anonymous::Nothing,
            Who::Read => Anonymous::As(Scope::Read),
            Who::Write => Anonymous::As(Scope::Write),
            Who::Admin => Anonymous::As(Scope::Admin),
        });
        let tls = self.tls_cert.zip(self.tls_key);
        Ok(Options {
            storage: self.storage,
            state: self.state,
            listen: self.listen,
            tls: tls.map(|(certificate, key)| Tls { certificate, key }),
            anonymous,
            memory: self.memory,
            cache: self.cache,
            max_upload: self.max_upload,
            quota_repo: self.quota_repo,
            quota_token: self.quota_token,
            min_upload_rate: self.min_upload_rate,
            lfs_expiry: (self.keep_lfs > 0).then(|| Duration::from_secs(u64::from(self.keep_lfs) * DAY)),
            max_connections: self.max_connections,
            max_connections_per_address: self.max_connections_per_address.map(|n| n as usize),
            umask: self.umask,
            sandbox: !self.no_sandbox,
            device_paths: mdl_codec_cuda::paths(),
            rate: self.rate,
            grace: Duration::from_secs(self.grace),
            stall_timeout: Duration::from_secs(self.stall.max(1)),
            min_download_rate: self.min_download_rate,
            public_url: self.public_url,
            private_webhooks: self.private_webhooks,
            hosts: self.hosts,
            trusted_proxies: self.trusted_proxies,
            token_failures: self.token_failures,
            audit_log: self.audit_log,
            read_only: self.read_only,
            protect: self.protect.as_deref().map(Protection::read).transpose()?.unwrap_or_default(),
            ..Options::new(self.root)
        })
    }
}

pub fn run(context: &mut Context, args: &Args) -> Result<()> {
    let engine = context.engine()?;
    let log = match args.log {
        Log::Text => LogFormat::Text,
        Log::Json => LogFormat::Json,
    };
    let out = &mut context.out;
    let ready = |url: &str| {
        // A reader that closed our standard output needs no URL.
        let _ = writeln!(out, "listening on {url}").and_then(|()| out.flush());
    };
    mdl_server::run(args.clone().options()?, engine, log, ready).map_err(CliError::from)
}
