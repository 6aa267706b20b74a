//! The connection to a peer, in clear or over TLS: written to by whoever has something to say, also
//! where nobody may wait.
//!
//! TLS keeps what it has taken and not yet given to the system. So what was written without waiting
//! may still lie here ([`Wire::is_flushed`]), until somebody who may wait flushes it.

use fermata_tls::rustls::ClientConnection;
use std::io::{self, ErrorKind, Read, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::net::TcpStream;

/// One connection.
pub(super) struct Wire {
    stream: TcpStream,
    tls: Option<Mutex<ClientConnection>>,
}

/// The socket, for what reads and writes at once or says that it would have to wait.
struct AtOnce<'a>(&'a TcpStream);

impl Read for AtOnce<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(bytes)
    }
}

impl Write for AtOnce<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    /// TLS has a piece for each record.
    fn write_vectored(&mut self, pieces: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(pieces)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Wire {
    /// In clear.
    pub(super) fn plain(stream: TcpStream) -> Wire {
        Wire { stream, tls: None }
    }

    /// After the handshake.
    pub(super) fn tls(stream: TcpStream, connection: ClientConnection) -> Wire {
        let tls = Some(Mutex::new(connection));
        Wire { stream, tls }
    }

    /// The socket.
    pub(super) fn socket(&self) -> &TcpStream {
        &self.stream
    }

    fn secured(&self) -> Option<MutexGuard<'_, ClientConnection>> {
        let tls = self.tls.as_ref()?;
        Some(tls.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes as many of the bytes as there is room for now.
    ///
    /// # Errors
    /// `WouldBlock`: of none; and what breaks the connection.
    pub(super) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        let Some(mut tls) = self.secured() else {
            return self.stream.try_write(bytes);
        };
        let mut taken = 0;
        // What TLS holds at once is less than a frame.
        while taken < bytes.len() {
            let more = match self.give(&mut tls)? {
                true => tls.writer().write(&bytes[taken..])?,
                false => 0,
            };
            if more == 0 {
                break;
            }
            taken += more;
        }
        self.give(&mut tls)?;
        match taken {
            0 if !bytes.is_empty() => Err(ErrorKind::WouldBlock.into()),
            taken => Ok(taken),
        }
    }

    /// Gives the system what it takes; whether that was all.
    fn give(&self, tls: &mut ClientConnection) -> io::Result<bool> {
        while tls.wants_write() {
            match tls.write_tls(&mut AtOnce(&self.stream)) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Whether the system has all that was written.
    pub(super) fn is_flushed(&self) -> bool {
        self.secured().is_none_or(|tls| !tls.wants_write())
    }

    /// Waits until it has.
    ///
    /// # Errors
    /// What breaks the connection.
    pub(super) async fn flush(&self) -> io::Result<()> {
        loop {
            let given = match self.secured() {
                Some(mut tls) => self.give(&mut tls)?,
                None => true,
            };
            if given {
                return Ok(());
            }
            self.stream.writable().await?;
        }
    }

    /// Writes all, and waits for room.
    ///
    /// # Errors
    /// What breaks the connection.
    pub(super) async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.try_write(bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.stream.writable().await?;
                }
                Err(error) => return Err(error),
            }
        }
        self.flush().await
    }

    /// Waits until there may be something to read, after [`Wire::try_read`] found nothing.
    ///
    /// # Errors
    /// What breaks the connection.
    pub(super) async fn readable(&self) -> io::Result<()> {
        self.stream.readable().await
    }

    /// Reads what is there; none: the other end is done.
    ///
    /// # Errors
    /// `WouldBlock`: there is nothing now; and what breaks the connection.
    pub(super) fn try_read(&self, bytes: &mut [u8]) -> io::Result<usize> {
        let Some(mut tls) = self.secured() else {
            return self.stream.try_read(bytes);
        };
        loop {
            match tls.reader().read(bytes) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                read => return read,
            }
            if tls.read_tls(&mut AtOnce(&self.stream))? == 0 {
                return Ok(0);
            }
            let processed = tls.process_new_packets();
            // It may have an answer, or an alert; whoever writes next gives it, too.
            let given = self.give(&mut tls);
            processed.map_err(|error| {
                let why = fermata_tls::why(&error).unwrap_or_default();
                io::Error::new(ErrorKind::InvalidData, why)
            })?;
            given?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fermata_tls::authority::{Authority, Span};
    use fermata_tls::rustls::pki_types::ServerName;
    use fermata_tls::{Admits, Files, Keeper, Name, Own};
    use std::path::Path;
    use std::time::Duration;
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;
    use tokio_rustls::{TlsAcceptor, TlsConnector};

    /// What a node of a new cluster shows.
    fn keeper(dir: &Path) -> Keeper {
        let span = Span::lasting(Duration::from_secs(86_400));
        let made = Authority::make("test", span).unwrap();
        made.store(dir, "ca").unwrap();
        let (cluster, label) = (7, "a".to_owned());
        let name = Name::Node {
            cluster,
            label: label.clone(),
        };
        let authority = Authority::of(&made).unwrap();
        let signed = authority.sign(&name, &[], span).unwrap();
        signed.store(dir, "a").unwrap();
        let files = Files {
            ca: dir.join("ca.pem"),
            own: Some((dir.join("a.pem"), dir.join("a.key"))),
        };
        Keeper::read(files, Own { cluster, label }, Admits::Certified).unwrap()
    }

    #[tokio::test]
    async fn what_the_socket_does_not_take_is_flushed_and_comes_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let keeper = keeper(dir.path());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let connects = async {
            let stream = TcpStream::connect(listener.local_addr().unwrap()).await;
            let host = ServerName::try_from("node").unwrap();
            let connector = TlsConnector::from(keeper.to_peers());
            connector.connect(host, stream.unwrap()).await.unwrap()
        };
        let accepts = async {
            let (stream, _) = listener.accept().await.unwrap();
            let acceptor = TlsAcceptor::from(keeper.peers());
            acceptor.accept(stream).await.unwrap()
        };
        let (connected, mut far) = tokio::join!(connects, accepts);
        let (stream, connection) = connected.into_inner();
        let wire = Wire::tls(stream, connection);
        // Nobody reads: in the end there is no room, and something is left in between.
        let (mut sent, mut piece) = (Vec::new(), 0_u8);
        let taken = loop {
            piece = piece.wrapping_add(1);
            let bytes = vec![piece; 10_000];
            match wire.try_write(&bytes) {
                Ok(taken) => sent.extend_from_slice(&bytes[..taken]),
                Err(error) => break error,
            }
        };
        assert_eq!(taken.kind(), ErrorKind::WouldBlock);
        assert!(!wire.is_flushed());
        let flushes = async {
            wire.flush().await.unwrap();
            assert!(wire.is_flushed());
        };
        let reads = async {
            let mut heard = vec![0; sent.len()];
            far.read_exact(&mut heard).await.unwrap();
            heard
        };
        let ((), heard) = tokio::join!(flushes, reads);
        assert!(heard == sent, "{} bytes", sent.len());
        assert_eq!(
            wire.try_read(&mut [0; 8]).unwrap_err().kind(),
            ErrorKind::WouldBlock
        );
    }
}
