//! The addresses to which no request is sent.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The reason for which an address is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RefusedAddress {
    /// `0.0.0.0/8` or `::`, which reach this machine.
    Unspecified,
    /// This machine. [`OutboundSettings::allow_loopback`](crate::OutboundSettings::allow_loopback) allows it.
    Loopback,
    /// A private network, or a unique local address of version 6.
    Private,
    /// A network behind the address translation of a provider (`100.64.0.0/10`).
    CarrierNat,
    /// A local link, which includes `169.254.169.254` and other services with credentials of the machine.
    LinkLocal,
    /// A service of a provider of machines at a public address.
    Metadata,
    /// A group of receivers, or all of a network.
    Multicast,
    /// A network for examples.
    Documentation,
    /// A network for benchmarks.
    Benchmark,
    /// An address of version 6 with one of version 4 in it: mapped, compatible, translated or tunnelled.
    EmbeddedV4,
    /// An address that no host has on the public network.
    Reserved,
}

impl RefusedAddress {
    /// Returns the setting that allows the address, as the rest of a sentence.
    pub(crate) fn setting(self) -> &'static str {
        match self {
            RefusedAddress::Loopback => {
                ", or allow this machine with `loopback_callbacks` (`OutboundSettings::allow_loopback`)"
            }
            _ => "",
        }
    }
}

impl fmt::Display for RefusedAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            RefusedAddress::Unspecified => "unspecified",
            RefusedAddress::Loopback => "loopback",
            RefusedAddress::Private => "private",
            RefusedAddress::CarrierNat => "behind a carrier's address translation",
            RefusedAddress::LinkLocal => "link-local",
            RefusedAddress::Metadata => "a metadata service",
            RefusedAddress::Multicast => "multicast or broadcast",
            RefusedAddress::Documentation => "for documentation",
            RefusedAddress::Benchmark => "for benchmarks",
            RefusedAddress::EmbeddedV4 => "version 4 inside version 6",
            RefusedAddress::Reserved => "reserved",
        })
    }
}

impl RefusedAddress {
    /// Returns the reason to refuse an address, or `None` for an address of the public network.
    #[must_use]
    pub fn of(address: IpAddr) -> Option<Self> {
        match address {
            IpAddr::V4(address) => of_v4(address),
            IpAddr::V6(address) => of_v6(address),
        }
    }
}

fn of_v4(address: Ipv4Addr) -> Option<RefusedAddress> {
    Some(match address.octets() {
        [0, ..] => RefusedAddress::Unspecified,
        [127, ..] => RefusedAddress::Loopback,
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => RefusedAddress::Private,
        [100, 64..=127, ..] => RefusedAddress::CarrierNat,
        [169, 254, ..] => RefusedAddress::LinkLocal,
        // The agent service of Azure.
        [168, 63, 129, 16] => RefusedAddress::Metadata,
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => RefusedAddress::Documentation,
        [198, 18..=19, ..] => RefusedAddress::Benchmark,
        // Assignments of the protocol and the relays of 6to4.
        [192, 0, 0, _] | [192, 88, 99, _] => RefusedAddress::Reserved,
        [224..=239, ..] | [255, 255, 255, 255] => RefusedAddress::Multicast,
        [240..=255, ..] => RefusedAddress::Reserved,
        _ => return None,
    })
}

fn of_v6(address: Ipv6Addr) -> Option<RefusedAddress> {
    if address.is_unspecified() {
        return Some(RefusedAddress::Unspecified);
    }
    if address.is_loopback() {
        return Some(RefusedAddress::Loopback);
    }
    Some(match address.segments() {
        // Compatible (::/96), mapped (::ffff:0:0/96), and translated (::ffff:0:0:0/96).
        [0, 0, 0, 0, 0, 0, ..] | [0, 0, 0, 0, 0, 0xffff, ..] | [0, 0, 0, 0, 0xffff, 0, ..] => {
            RefusedAddress::EmbeddedV4
        }
        // NAT64, with the prefix for local use.
        [0x64, 0xff9b, ..] => RefusedAddress::EmbeddedV4,
        [0xfe80..=0xfebf, ..] => RefusedAddress::LinkLocal,
        // Site-local addresses came before the unique local ones.
        [0xfec0..=0xfeff, ..] | [0xfc00..=0xfdff, ..] => RefusedAddress::Private,
        [0xff00..=0xffff, ..] => RefusedAddress::Multicast,
        [0x2001, 0x0db8, ..] | [0x3fff, 0..=0x0fff, ..] => RefusedAddress::Documentation,
        [0x2001, 0x0002, 0, ..] => RefusedAddress::Benchmark,
        // Teredo, 6to4, and ISATAP in any network.
        [0x2001, 0, ..] | [0x2002, ..] | [_, _, _, _, 0 | 0x0200, 0x5efe, _, _] => RefusedAddress::EmbeddedV4,
        [0x2001, 0..=0x01ff, ..] => RefusedAddress::Reserved,
        [0x2000..=0x3fff, ..] => return None,
        _ => RefusedAddress::Reserved,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(address: &str) -> Option<RefusedAddress> {
        RefusedAddress::of(address.parse().unwrap())
    }

    #[test]
    fn addresses_of_the_public_network_are_allowed() {
        for address in ["1.1.1.1", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.0.0.1"]
            .into_iter()
            .chain(["128.0.0.1", "169.253.0.1", "172.15.0.1", "172.32.0.1", "192.167.1.1", "192.169.0.1"])
            .chain(["198.17.0.1", "198.20.0.1", "223.255.255.255", "168.63.129.17"])
            .chain(["2606:4700::1111", "2a00:1450:4001::200e", "2001:4860:4860::8888", "2620:fe::fe"])
        {
            assert_eq!(reason(address), None, "{address}");
        }
    }

    #[test]
    fn all_other_addresses_are_refused() {
        use RefusedAddress::*;
        for (address, expected) in [
            ("0.0.0.0", Unspecified),
            ("0.1.2.3", Unspecified),
            ("127.0.0.1", Loopback),
            ("127.255.255.254", Loopback),
            ("10.0.0.1", Private),
            ("172.16.0.1", Private),
            ("172.31.255.255", Private),
            ("192.168.1.1", Private),
            ("100.64.0.1", CarrierNat),
            ("100.100.100.200", CarrierNat),
            ("169.254.169.254", LinkLocal),
            ("168.63.129.16", Metadata),
            ("192.0.0.192", Reserved),
            ("192.88.99.1", Reserved),
            ("192.0.2.1", Documentation),
            ("198.51.100.7", Documentation),
            ("203.0.113.255", Documentation),
            ("198.18.0.1", Benchmark),
            ("198.19.255.255", Benchmark),
            ("224.0.0.1", Multicast),
            ("239.255.255.250", Multicast),
            ("240.0.0.1", Reserved),
            ("255.255.255.255", Multicast),
            ("::", Unspecified),
            ("::1", Loopback),
            ("::127.0.0.1", EmbeddedV4),
            ("::8.8.8.8", EmbeddedV4),
            ("::ffff:127.0.0.1", EmbeddedV4),
            ("::ffff:8.8.8.8", EmbeddedV4),
            ("::ffff:0:10.0.0.1", EmbeddedV4),
            ("64:ff9b::a00:1", EmbeddedV4),
            ("64:ff9b:1::a00:1", EmbeddedV4),
            ("2002:7f00:1::", EmbeddedV4),
            ("2001:0:4136:e378::", EmbeddedV4),
            ("2a00:1450::5efe:10.0.0.1", EmbeddedV4),
            ("2a00:1450::200:5efe:a00:1", EmbeddedV4),
            ("fe80::1", LinkLocal),
            ("febf::1", LinkLocal),
            ("fec0::1", Private),
            ("fc00::1", Private),
            ("fd00:ec2::254", Private),
            ("ff02::1", Multicast),
            ("2001:db8::1", Documentation),
            ("3fff::1", Documentation),
            ("2001:2::1", Benchmark),
            ("2001:20::1", Reserved),
            ("100::1", Reserved),
            ("4000::1", Reserved),
            ("5f00::1", Reserved),
        ] {
            assert_eq!(reason(address), Some(expected), "{address}");
        }
    }
}
