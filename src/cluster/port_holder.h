/* Which process of this machine listens on a port: for messages about a port that is taken. */
#ifndef FTH_CLUSTER_PORT_HOLDER_H
#define FTH_CLUSTER_PORT_HOLDER_H

/* "process 4711 (nginx)", or NULL where that cannot be known: another user's process, or another
 * container's. free() it. */
char *fth_port_holder(int port);

#endif
