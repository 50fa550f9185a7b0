"""Distribution of work over a Ray cluster; knows nothing of documents or labels.

`connection` connects to a cluster, `transfer` serialises functions and items, `scheduling` maps a function over items
on the cluster, and `worker` runs it there. `training` starts a group of processes that train one network together with
Ray Train, and `worker_group` plans its size."""
