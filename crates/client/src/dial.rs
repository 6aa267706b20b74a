//! How a client connects: in clear, or over TLS.
//!
//! With TLS 1.3 a client is done with the handshake before the node has looked at its certificate,
//! and hears of a refusal where it reads for the first time. By then the libraries in between have
//! made "broken pipe" of it. So the connection itself notes what TLS says ([`Noted`]).

use crate::account;
use crate::credentials::{Bearer, Credentials};
use crate::error::Error;
use fermata_tls::Trust;
use fermata_tls::rustls::pki_types::ServerName;
use hyper_util::rt::TokioIo;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::{Channel, Endpoint, Uri};

/// How a client connects.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dial {
    /// Whom it trusts, and what it shows; none: in clear.
    pub(crate) tls: Option<Trust>,
    /// What it shows to say who it is, beside a certificate.
    pub(crate) credentials: Option<Credentials>,
}

/// Why TLS has refused a connection on which nothing had come yet: the node has had nothing of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Noted(Arc<Mutex<Option<String>>>);

impl Noted {
    /// What was noted.
    pub(crate) fn said(&self) -> Option<String> {
        let said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        said.clone()
    }
}

impl Dial {
    /// What the calls of a new connection show.
    ///
    /// # Errors
    /// See [`Credentials::bearer`].
    pub(crate) fn bearer(&self) -> Result<Bearer, String> {
        let bearer = self.credentials.as_ref().map(Credentials::bearer);
        Ok(bearer.transpose()?.unwrap_or_default())
    }

    /// The URI of a node at `host:port`.
    pub(crate) fn uri(&self, address: &str) -> String {
        match self.tls.is_some() {
            true => format!("https://{address}"),
            false => format!("http://{address}"),
        }
    }

    /// The endpoint of a URI, not yet connected. Peers that vanish without a word are noticed
    /// within ten seconds.
    ///
    /// # Errors
    /// [`Error::Options`]: it is none, or of the other kind.
    pub(crate) fn endpoint(&self, uri: &str) -> Result<Endpoint, Error> {
        let fits = uri.starts_with(&self.uri(""));
        let endpoint = Endpoint::from_shared(uri.to_owned()).ok();
        let endpoint = endpoint.filter(|_| fits).ok_or_else(|| {
            let (right, why) = match self.tls.is_some() {
                true => (self.uri("host:port"), ", since certificates are given"),
                false if uri.starts_with("https://") => {
                    (self.uri("host:port"), ", or say whom to trust, for TLS")
                }
                false => (self.uri("host:port"), ""),
            };
            Error::Options(format!("{uri:?} is no endpoint: write {right}{why}."))
        })?;
        Ok(endpoint
            .connect_timeout(Duration::from_secs(2))
            .tcp_nodelay(true)
            .initial_stream_window_size(8 << 20)
            .initial_connection_window_size(32 << 20)
            .http2_keep_alive_interval(Duration::from_secs(5))
            .keep_alive_timeout(Duration::from_secs(5))
            .keep_alive_while_idle(true))
    }

    /// Connects.
    ///
    /// # Errors
    /// Why not, in a few words.
    pub(crate) async fn connect(&self, endpoint: &Endpoint) -> Result<(Channel, Noted), String> {
        let noted = Noted::default();
        let connected = match &self.tls {
            None => endpoint.connect().await,
            Some(trust) => {
                let mut config = (*trust.config()).clone();
                // Whoever ends TLS before the node has to know what is inside.
                config.alpn_protocols = vec![b"h2".to_vec()];
                let (config, noted) = (Arc::new(config), noted.clone());
                let connector = tower::service_fn(move |uri: Uri| {
                    let (config, noted) = (config.clone(), noted.clone());
                    async move { secured(&uri, TlsConnector::from(config), noted).await }
                });
                endpoint.connect_with_connector(connector).await
            }
        };
        let channel = connected.map_err(|error| match noted.said() {
            Some(said) => said,
            None => account::why(&error),
        })?;
        Ok((channel, noted))
    }
}

/// Connects over TLS.
async fn secured(uri: &Uri, connector: TlsConnector, noted: Noted) -> io::Result<TokioIo<Noting>> {
    let no_host = || io::Error::other("the address has no host");
    let host = uri.host().ok_or_else(no_host)?;
    // An address of version 6 is in brackets.
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let name = ServerName::try_from(host.to_owned()).map_err(|_| no_host())?;
    let stream = TcpStream::connect((host, uri.port_u16().unwrap_or(443))).await?;
    stream.set_nodelay(true)?;
    let stream = connector.connect(name, stream).await?;
    Ok(TokioIo::new(Noting {
        stream,
        noted,
        fresh: true,
    }))
}

/// A connection that notes why it is refused.
struct Noting {
    stream: TlsStream<TcpStream>,
    noted: Noted,
    /// Nothing has come yet.
    fresh: bool,
}

impl Noting {
    /// Whoever refuses says why and hangs up: that is read before it shows that nothing more is
    /// taken.
    fn or_heard<A>(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        done: Poll<io::Result<A>>,
    ) -> Poll<io::Result<A>> {
        if !self.fresh || !matches!(done, Poll::Ready(Err(_))) {
            return done;
        }
        let mut room = [0; 1];
        match self.as_mut().poll_read(cx, &mut ReadBuf::new(&mut room)) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(())) => done,
        }
    }
}

impl AsyncRead for Noting {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        match &read {
            Poll::Ready(Err(error)) if self.fresh => {
                if let Some(said) = fermata_tls::refused(error) {
                    let noted = self.noted.0.lock();
                    *noted.unwrap_or_else(PoisonError::into_inner) = Some(said);
                }
            }
            Poll::Ready(Ok(())) if buf.filled().len() > before => self.fresh = false,
            _ => {}
        }
        read
    }
}

impl AsyncWrite for Noting {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.or_heard(cx, done)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut self.stream).poll_flush(cx);
        self.or_heard(cx, done)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
