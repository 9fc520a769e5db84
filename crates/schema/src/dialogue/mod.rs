//! The dialogue message: what two agents negotiate with, signed.
