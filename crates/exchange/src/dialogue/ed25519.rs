//! Ed25519 (RFC 8032): signatures that everybody can verify and one agent can make.

use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};

/// The length of a private key and of a public key in bytes.
pub const ED25519_BYTES: usize = 32;

/// A public key, as RFC 8032 encodes it.
pub(super) type PublicBytes = [u8; ED25519_BYTES];

/// A valid public key, which stands for one that does not exist. It is that of the first example of RFC 8032.
pub(super) const DECOY: PublicBytes = [
    0xd7, 0x5a, 0x98, 0x01, 0x82, 0xb1, 0x0a, 0xb7, 0xd5, 0x4b, 0xfe, 0xd3, 0xc9, 0x64, 0x07, 0x3a, 0x0e,
    0xe1, 0x72, 0xf3, 0xda, 0xa6, 0x23, 0x25, 0xaf, 0x02, 0x1a, 0x68, 0xf7, 0x07, 0x51, 0x1a,
];

/// The first bytes of the encodings of the points of small order, without their signs. Other bytes repeat the last one.
const SMALL_ORDER: [&[u8]; 7] = [
    &[0x00],
    &[0x01, 0x00],
    &[
        0x26, 0xe8, 0x95, 0x8f, 0xc2, 0xb2, 0x27, 0xb0, 0x45, 0xc3, 0xf4, 0x89, 0xf2, 0xef, 0x98, 0xf0, 0xd5,
        0xdf, 0xac, 0x05, 0xd3, 0xc6, 0x33, 0x39, 0xb1, 0x38, 0x02, 0x88, 0x6d, 0x53, 0xfc, 0x05,
    ],
    &[
        0xc7, 0x17, 0x6a, 0x70, 0x3d, 0x4d, 0xd8, 0x4f, 0xba, 0x3c, 0x0b, 0x76, 0x0d, 0x10, 0x67, 0x0f, 0x2a,
        0x20, 0x53, 0xfa, 0x2c, 0x39, 0xcc, 0xc6, 0x4e, 0xc7, 0xfd, 0x77, 0x92, 0xac, 0x03, 0x7a,
    ],
    &[0xec, 0xff],
    &[0xed, 0xff],
    &[0xee, 0xff],
];

/// Returns the public key of a private one, or `None` if that has another length.
pub(super) fn public_key(private: &[u8]) -> Option<PublicBytes> {
    pair(private)?.public_key().as_ref().try_into().ok()
}

/// Returns true if everybody could sign for a public key: it is a point of small order.
pub(super) fn is_weak(public: &PublicBytes) -> bool {
    let mut plain = *public;
    plain[ED25519_BYTES - 1] &= 0x7f;
    SMALL_ORDER.iter().any(|start| {
        let mut point = [start[start.len() - 1]; ED25519_BYTES];
        point[..start.len()].copy_from_slice(start);
        point[ED25519_BYTES - 1] &= 0x7f;
        point == plain
    })
}

/// Signs a text with a private key of the right length.
pub(super) fn sign(private: &[u8], text: &[u8]) -> Vec<u8> {
    pair(private).map(|pair| pair.sign(text).as_ref().to_vec()).unwrap_or_default()
}

/// Returns true if the owner of a public key has signed a text.
pub(super) fn is_signed(public: &PublicBytes, text: &[u8], signature: &[u8]) -> bool {
    #[cfg(test)]
    tests::CHECKS.set(tests::CHECKS.get() + 1);
    UnparsedPublicKey::new(&ED25519, public).verify(text, signature).is_ok()
}

fn pair(private: &[u8]) -> Option<Ed25519KeyPair> {
    Ed25519KeyPair::from_seed_unchecked(private).ok()
}

#[cfg(test)]
pub(super) mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        /// The number of signatures that this thread has checked.
        pub(in crate::dialogue) static CHECKS: Cell<u32> = const { Cell::new(0) };
    }

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(hex.get(at..at + 2).unwrap(), 16).unwrap())
            .collect()
    }

    /// The private key of the decoy, which everybody knows.
    pub(in crate::dialogue) fn decoy_private() -> PublicBytes {
        bytes("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60").try_into().unwrap()
    }

    /// RFC 8032, 7.1: the first three examples.
    #[test]
    fn example_signatures_of_the_rfc() {
        let cases = [
            (
                "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
                "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
                "",
                "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
            ),
            (
                "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
                "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
                "72",
                "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
            ),
            (
                "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
                "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
                "af82",
                "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a",
            ),
        ];
        for (private, public, text, expected) in
            cases.map(|(a, b, c, d)| (bytes(a), bytes(b), bytes(c), bytes(d)))
        {
            let found = public_key(&private).unwrap();
            assert_eq!(found.as_slice(), public);
            assert_eq!(sign(&private, &text), expected);
            assert!(is_signed(&found, &text, &expected) && !is_signed(&DECOY, b"72", &expected));
        }
        assert_eq!(public_key(&decoy_private()), Some(DECOY));
        assert_eq!(public_key(&[1; 31]), None);
    }

    #[test]
    fn points_of_small_order_are_weak() {
        let one = |first: u8, rest: u8, last: u8| {
            let mut point = [rest; ED25519_BYTES];
            (point[0], point[ED25519_BYTES - 1]) = (first, last);
            point
        };
        for weak in [
            one(0, 0, 0),
            one(0, 0, 0x80),
            one(1, 0, 0),
            one(1, 0, 0x80),
            one(0xec, 0xff, 0x7f),
            one(0xed, 0xff, 0xff),
            one(0xee, 0xff, 0x7f),
        ] {
            assert!(is_weak(&weak), "{weak:?}");
        }
        for start in SMALL_ORDER.iter().filter(|start| start.len() == ED25519_BYTES) {
            let mut point: PublicBytes = (*start).try_into().unwrap();
            assert!(is_weak(&point));
            point[ED25519_BYTES - 1] ^= 0x80;
            assert!(is_weak(&point));
            point[0] ^= 1;
            assert!(!is_weak(&point));
        }
        assert!(!is_weak(&DECOY) && !is_weak(&one(2, 0, 0)) && !is_weak(&one(0xeb, 0xff, 0x7f)));
        // A signature of nobody counts for the neutral element: R is that element too, and S is 0.
        let (neutral, mut nobody) = (one(1, 0, 0), [0; 64]);
        nobody[0] = 1;
        assert!(is_signed(&neutral, b"I owe you all.", &nobody));
    }
}
