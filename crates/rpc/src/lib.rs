//! A two-way JSON-RPC 2.0 peer over newline-delimited JSON.
