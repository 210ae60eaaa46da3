//! Names, addresses and leases of sites and terminals, by number.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::SystemTime;

use sluice_daemon::subscribers::virtual_mac::{VirtualMacs, text};
use sluice_nat::Secret;
use sluice_wire::Mac;

use super::Failure;
use crate::rig::sites::{tags, terminal_mac};

/// Name of a site, which consists of the name of its group and of its tags.
pub fn name(site: u32) -> String {
    let (service, customer) = tags(site);
    format!("homes-{service}.{customer}")
}

/// Virtual MAC addresses of all sites.
pub fn virtual_macs(sites: u32) -> Result<Vec<Mac>, Failure> {
    let names: Vec<_> = (0..sites).map(name).collect();
    let named: Vec<_> = names.iter().map(|name| (name.as_str(), None)).collect();
    Ok(VirtualMacs::new(Secret([9, 9]), &[])?.assign(&named)?)
}

/// Address of terminal number `terminal`, counted over all sites: unique and within 10.0.0.0/8, as if one server leased
/// all addresses.
pub fn terminal_address(terminal: u32) -> Ipv4Addr {
    Ipv4Addr::from(0x0a00_0100 + terminal)
}

/// Header line of Kea's lease file.
const KEA_HEADER: &str =
    "address,hwaddr,client_id,valid_lifetime,expire,subnet_id,fqdn_fwd,fqdn_rev,hostname,state,user_context\n";

/// A lease file in Kea's format, as the terminals' DHCP server writes it. Leases expire an hour after the file was
/// created.
#[derive(Debug)]
pub struct LeaseFile {
    file: File,
    expires: u64,
}

impl LeaseFile {
    pub fn create(file: &Path) -> Result<Self, Failure> {
        let mut file = OpenOptions::new().create(true).append(true).open(file)?;
        file.write_all(KEA_HEADER.as_bytes())?;
        let expires = unix()? + 3_600;
        Ok(Self { file, expires })
    }

    /// Leases addresses to terminals, each in a site.
    pub fn add(&mut self, leases: impl Iterator<Item = (u32, u32, Ipv4Addr)>) -> Result<(), Failure> {
        let mut writer = BufWriter::new(&self.file);
        for (site, terminal, address) in leases {
            writer.write_all(kea_line(site, terminal, address, self.expires).as_bytes())?;
        }
        Ok(writer.flush()?)
    }
}

/// Seconds since the Unix epoch.
pub fn unix() -> Result<u64, Failure> {
    Ok(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs())
}

/// Line of a terminal's lease in Kea's lease file. The lease expires at the Unix time `expires`; the relay agent
/// information identifies the site.
fn kea_line(site: u32, terminal: u32, address: Ipv4Addr, expires: u64) -> String {
    let circuit = name(site);
    let mut option = format!("0x01{:02X}", circuit.len());
    option.extend(circuit.bytes().map(|byte| format!("{byte:02X}")));
    format!(
        "{address},{},,3600,{expires},1,0,0,terminal-{terminal},0,{{ \"ISC\": {{ \"relay-agent-info\": \"{option}\" }} }}\n",
        text(terminal_mac(terminal)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_daemon::subscribers::leases::{Entry, Format, Reader};

    #[test]
    fn line_of_a_lease_is_read_as_what_it_was_written_of() {
        let (mut reader, mut read) = (Reader::new(Format::Kea), Vec::new());
        let text = [
            KEA_HEADER,
            &kea_line(1_001, 4_007, terminal_address(4_007), 2_000_000_000),
        ]
        .concat();
        reader.read(text.as_bytes(), &mut read);
        let [Ok(Entry::Leased(lease))] = &read[..] else {
            panic!("{read:?}");
        };
        assert_eq!(terminal_address(4_007), lease.address);
        assert_eq!(terminal_mac(4_007), lease.hardware);
        let relay = lease.relay.as_ref().expect("the relay's information");
        assert_eq!(b"homes-101.2"[..], *relay.circuit);
    }
}
