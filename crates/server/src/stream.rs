//! A connection that was accepted, in clear or over TLS.

use fermata_tls::rustls::ServerConfig;
use fermata_tls::rustls::pki_types::CertificateDer;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// How long one that is refused may take to hang up.
const PARTING: Duration = Duration::from_secs(1);

/// What is read from and written to.
pub(crate) enum Stream {
    /// In clear.
    Plain(TcpStream),
    /// Over TLS.
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    /// Shakes hands, where there is something to shake with.
    pub(crate) async fn accept(
        stream: TcpStream,
        tls: Option<Arc<ServerConfig>>,
    ) -> io::Result<Stream> {
        Ok(match tls {
            None => Stream::Plain(stream),
            Some(config) => {
                let accepted = TlsAcceptor::from(config).accept(stream).into_fallible();
                match accepted.await {
                    Ok(accepted) => Stream::Tls(Box::new(accepted)),
                    Err((error, stream)) => {
                        part(stream).await;
                        return Err(error);
                    }
                }
            }
        })
    }

    /// What the other end has shown, over TLS.
    pub(crate) fn certificates(&self) -> Option<Option<&[CertificateDer<'static>]>> {
        match self {
            Stream::Plain(_) => None,
            Stream::Tls(stream) => Some(stream.get_ref().1.peer_certificates()),
        }
    }

    /// Over TLS: what both have agreed to speak, by ALPN's word.
    pub(crate) fn protocol(&self) -> Option<Option<&[u8]>> {
        match self {
            Stream::Plain(_) => None,
            Stream::Tls(stream) => Some(stream.get_ref().1.alpn_protocol()),
        }
    }

    /// The socket.
    pub(crate) fn socket(&self) -> &TcpStream {
        match self {
            Stream::Plain(stream) => stream,
            Stream::Tls(stream) => stream.get_ref().0,
        }
    }
}

/// Closes a connection on which the other end was told why it is refused. What it still sends is
/// read, and forgotten: closed with something unread, it would be cut off, and not hear that.
async fn part(mut stream: TcpStream) {
    let read = async {
        stream.shutdown().await?;
        let mut rest = [0; 1024];
        while stream.read(&mut rest).await? > 0 {}
        Ok::<_, io::Error>(())
    };
    // Who does not hang up then does not want to know.
    let _ = tokio::time::timeout(PARTING, read).await;
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Stream::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Stream::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Stream::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Stream::Plain(stream) => stream.is_write_vectored(),
            Stream::Tls(stream) => stream.is_write_vectored(),
        }
    }
}
