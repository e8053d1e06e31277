//! Pure logic of system transactions: identities, versions, facets, worksets, conflicts, reports.
