//! The derive behind the wire types of duologue-schema.
