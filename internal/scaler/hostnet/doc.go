// Package hostnet isolates the agents of a bridge by nftables, over netlink. It knows nothing of what runs behind the bridge's ports:
// containers and microVMs use it alike.
//
// What it makes fails closed. One transaction puts a baseline around a bridge: what comes from it is looked up by bridge and source
// address in a map of agents, and dropped when it is not there, as is what comes from its network by another interface; what would open
// a connection to an agent is dropped; frames from one port of the bridge to another are dropped, and so is IPv6. Giving an agent its rules is another transaction: two chains, for what it
// reaches through the host and on the host, and an entry in the maps. So an agent can send nothing before its rules are there, and no
// moment is more open than the end (NET-7).
//
// Where the port of a bridge behind which an agent is can be told, its address is bound to it: frames with another one are dropped as they
// come in, so that no agent borrows its neighbour's.
//
// Everything stands in a table "kici" of the families ip, ip6 and bridge, which orchestrators on one host share. The baseline is the
// same for all of them, entries are made and removed by name, and each entry says whose it is.
//
// A process that dies leaves the rules in force; the next Sync takes them up from what is there.
package hostnet
