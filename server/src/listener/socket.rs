//! A client's socket: knows whether unread bytes wait, and closes so that the client can still read the last answer.
//!
//! A client that is still sending when it is answered (an upload that was refused) would get a reset instead of the
//! answer if the socket just closed. So what it goes on to send is read and thrown away for a while.

use crate::listener::connections::State;
use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::{Sleep, sleep},
};

/// For how long, and how many bytes, a client's unread data is drained before closing.
const DRAIN: Duration = Duration::from_secs(2);
const DRAIN_BYTES: usize = 16 << 20;
const PIECE: usize = 16 << 10;

pub(super) struct Socket {
    tcp: TcpStream,
    state: Arc<State>,
    draining: Option<Draining>,
}

struct Draining {
    end: Pin<Box<Sleep>>,
    left: usize,
}

impl Socket {
    pub(super) fn new(tcp: TcpStream, state: Arc<State>) -> Socket {
        // Small answers should not wait for more to send.
        let _ = tcp.set_nodelay(true);
        Socket { tcp, state, draining: None }
    }

    fn noted<T>(&self, written: Poll<T>) -> Poll<T> {
        self.state.set_unsent(written.is_pending());
        written
    }
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_read(cx, buf)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.tcp).poll_write(cx, buf);
        self.noted(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.tcp).poll_write_vectored(cx, bufs);
        self.noted(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let socket = &mut *self;
        if socket.draining.is_none() {
            ready!(Pin::new(&mut socket.tcp).poll_shutdown(cx))?;
        }
        let draining =
            socket.draining.get_or_insert_with(|| Draining { end: Box::pin(sleep(DRAIN)), left: DRAIN_BYTES });
        let mut piece = [0; PIECE];
        while draining.left > 0 && draining.end.as_mut().poll(cx).is_pending() {
            let mut buf = ReadBuf::new(&mut piece);
            match ready!(Pin::new(&mut socket.tcp).poll_read(cx, &mut buf)) {
                Ok(()) if !buf.filled().is_empty() => {
                    draining.left = draining.left.saturating_sub(buf.filled().len());
                }
                // It has closed, or broken off.
                _ => break,
            }
        }
        Poll::Ready(Ok(()))
    }
}
