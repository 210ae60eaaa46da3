//! The relay of private DHCP.
