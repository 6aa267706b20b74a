//! What a client shows to say who it is, where it shows no certificate.

use std::fmt;
use std::path::PathBuf;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::{Request, Status};

/// Bytes of the longest token, a JWT.
const TOKEN_MAX: usize = 16 << 10;

/// What a client shows: a token that `fermata token create` has made, or the JWT of an issuer that
/// the cluster knows.
#[derive(Clone, PartialEq, Eq)]
pub enum Credentials {
    /// The token itself.
    Token(String),
    /// The file that has it, read for each connection: it may be replaced while the client runs.
    File(PathBuf),
}

/// Without the secret.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Credentials::Token(_) => f.write_str("Token"),
            Credentials::File(path) => write!(f, "File({})", path.display()),
        }
    }
}

impl Credentials {
    /// What is shown now.
    ///
    /// # Errors
    /// In a few words: the file cannot be read, or has no token.
    pub(crate) fn bearer(&self) -> Result<Bearer, String> {
        let text = match self {
            Credentials::Token(token) => token.clone(),
            Credentials::File(path) => {
                let read = std::fs::read_to_string(path);
                read.map_err(|error| format!("cannot read {}: {error}", path.display()))?
            }
        };
        let text = text.trim();
        if text.len() > TOKEN_MAX {
            let length = text.len();
            return Err(format!(
                "the token has {length} bytes, and is none: it is another file"
            ));
        }
        let value = format!("Bearer {text}").parse::<MetadataValue<Ascii>>();
        let mut value = value.ok().filter(|_| !text.is_empty()).ok_or(match self {
            Credentials::Token(_) => "the token is none: it is one line of letters".to_owned(),
            Credentials::File(path) => format!("{} has no token", path.display()),
        })?;
        value.set_sensitive(true);
        Ok(Bearer(Some(value)))
    }
}

/// What each call of a connection shows.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Bearer(Option<MetadataValue<Ascii>>);

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(value) = &self.0 {
            request
                .metadata_mut()
                .insert("authorization", value.clone());
        }
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_one_line_and_shows_in_no_log() {
        let token = |text: &str| Credentials::Token(text.into());
        let bearer = token(" secret\n").bearer().unwrap();
        assert!(!format!("{bearer:?}{:?}", token("secret")).contains("secret"));
        for none in ["", " ", "a\nb", "é\u{7f}"] {
            assert!(token(none).bearer().is_err(), "{none:?}");
        }
        assert!(Credentials::File("/nowhere".into()).bearer().is_err());
    }
}
