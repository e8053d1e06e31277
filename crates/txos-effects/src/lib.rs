//! Effects: the system call filter and its supervisor, standard streams, deferred service requests.
