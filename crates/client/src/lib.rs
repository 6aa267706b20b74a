//! The Fermata client library: sections, registers and eventual operations over gRPC.
