"""Work handed out to the machines of a Ray cluster. This room knows nothing of documents or labels: it takes a function
and items, as `Run.map` does, and gives back the answers in the order of the items.

`connecting` joins a cluster, `sending` says how functions and items travel, `spreading` hands them out, and `working`
is what the machines do with them. Work that several processes do `together`, as the training of a network, is begun by
Ray Train (`launching`), by as many as there is room for (`team`); what they ask goes through `asking`."""
