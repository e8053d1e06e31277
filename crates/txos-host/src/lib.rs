//! Reading the stable system: paths resolved beneath pinned directories, versions, listings, hashes, leases, mounts.
