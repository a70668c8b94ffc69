/*
 * Kinds of specifications of rules, and actions, with packets: one that the rule takes, and before it one
 * that differs in what the rule asks for, which is longer.
 */
#include "packets.h"

#include <endian.h>

enum {
	OTHER = 7,
	VXLAN_PORT = 4789,
	KEY = 0x1234,
};

struct packet {
	uint8_t bytes[FRAME];
	unsigned int length;
};

static struct packet ip4(uint8_t protocol)
{
	struct packet packet = {};

	packet.length = headers(packet.bytes, protocol, 60) + 60;
	return packet;
}

static struct packet udp6(void)
{
	struct packet packet = {};
	uint8_t *ip = packet.bytes + 14;

	memcpy(packet.bytes, THERE, 6);
	memcpy(packet.bytes + 6, HERE, 6);
	put(packet.bytes + 12, 0x86dd, 2);
	ip[0] = 0x60;
	put(ip + 4, 8 + 60, 2);
	ip[6] = IPPROTO_UDP;
	ip[7] = 64;
	ip[8] = ip[24] = 0xfd;
	ip[23] = 1;
	ip[39] = 2;
	put(ip + 40, 1000, 2);
	put(ip + 42, 2000, 2);
	put(ip + 44, 8 + 60, 2);
	packet.length = 14 + 40 + 8 + 60;
	return packet;
}

/* A packet in a tunnel: behind the headers, and so many bytes of the tunnel's, the packet inside. */
static struct packet inside(uint8_t protocol, const uint8_t *tunnel, unsigned int length, unsigned int from)
{
	struct packet packet = {}, in = ip4(IPPROTO_UDP);
	uint8_t *ip = packet.bytes + 14;
	unsigned int all = length + in.length - from;

	packet.length = headers(packet.bytes, IPPROTO_UDP, all) + all;
	if (protocol == IPPROTO_UDP) {
		put(ip + 22, VXLAN_PORT, 2);
		ip += 28;
	} else {
		packet.length -= 8;
		put(ip + 2, 20 + all, 2);
		ip[9] = protocol;
		ip += 20;
	}
	memcpy(ip, tunnel, length);
	memcpy(ip + length, in.bytes + from, in.length - from);
	return packet;
}

static struct packet vxlan(void)
{
	static const uint8_t tunnel[8] = { 8, 0, 0, 0, 0, KEY >> 8, KEY & 0xff, 0 };

	return inside(IPPROTO_UDP, tunnel, sizeof(tunnel), 0);
}

static struct packet gre(void)
{
	static const uint8_t tunnel[8] = { 0x20, 0, 8, 0, 0, 0, KEY >> 8, KEY & 0xff };

	return inside(IPPROTO_GRE, tunnel, sizeof(tunnel), 14);
}

static void send_packet(struct end *here, const struct packet *packet, unsigned int more)
{
	struct ibv_sge sge = { (uintptr_t)here->bed.from, packet->length + more, here->bed.mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED }, *bad;
	struct ibv_wc wc;

	memcpy(here->bed.from, packet->bytes, packet->length);
	memset(here->bed.from + packet->length, 0, more);
	must(!ibv_post_send(here->qp, &wr, &bad), "ibv_post_send");
	poll_one(ibv_cq_ex_to_cq(here->cq), &wc);
	must(wc.status == IBV_WC_SUCCESS, "sent");
}

static void came(struct end *there, const char *what, const struct packet *wanted)
{
	struct ibv_wc wc;

	poll_one(ibv_cq_ex_to_cq(there->cq), &wc);
	printf("%s: %s, and nothing else %d\n", what, wc.byte_len == wanted->length ? "it" : "the other",
	       !ibv_poll_cq(ibv_cq_ex_to_cq(there->cq), 1, &wc));
}

/* Makes a rule of a kind. It takes a packet, and not one of which the byte there is another. */
static void takes(struct end *here, struct end *there, const void *spec, size_t size,
		  const struct packet *packet, unsigned int differs, const char *what)
{
	struct rule rule = to_mac(THERE);
	struct packet other = *packet;
	struct ibv_flow *flow;
	unsigned int at = 0;

	add(&rule, &at, spec, size);
	flow = make_rule(there->qp, &rule, what);
	if (!flow)
		return;
	other.bytes[differs] ^= 1;
	receive(there, 1);
	send_packet(here, &other, OTHER);
	send_packet(here, packet, 0);
	came(there, what, packet);
	must(!ibv_destroy_flow(flow), "ibv_destroy_flow");
}

static void specifications(struct end *here, struct end *there)
{
	struct packet udp = ip4(IPPROTO_UDP), tcp = ip4(IPPROTO_TCP), six = udp6(), vx = vxlan(), key = gre();
	struct ibv_flow_spec_ipv4 v4 = { .type = IBV_FLOW_SPEC_IPV4, .size = sizeof(v4) };
	struct ibv_flow_spec_ipv4_ext ext = { .type = IBV_FLOW_SPEC_IPV4_EXT, .size = sizeof(ext) };
	struct ibv_flow_spec_ipv6 v6 = { .type = IBV_FLOW_SPEC_IPV6, .size = sizeof(v6) };
	struct ibv_flow_spec_tcp_udp port = { .type = IBV_FLOW_SPEC_UDP, .size = sizeof(port) };
	struct ibv_flow_spec_tunnel tunnel = { .type = IBV_FLOW_SPEC_VXLAN_TUNNEL, .size = sizeof(tunnel) };
	struct ibv_flow_spec_gre generic = { .type = IBV_FLOW_SPEC_GRE, .size = sizeof(generic) };
	struct ibv_flow_spec_mpls label = { .type = IBV_FLOW_SPEC_MPLS, .size = sizeof(label) };
	struct ibv_flow_spec_esp esp = { .type = IBV_FLOW_SPEC_ESP, .size = sizeof(esp) };
	struct ibv_flow_spec_eth eth = { .type = IBV_FLOW_SPEC_INNER | IBV_FLOW_SPEC_ETH, .size = sizeof(eth) };

	v4.val.src_ip = htobe32(0xc0000201);
	v4.mask.src_ip = ~0;
	takes(here, there, &v4, sizeof(v4), &udp, 14 + 15, "IPv4");
	ext.val.dst_ip = htobe32(0xc0000202);
	ext.mask.dst_ip = ~0;
	ext.val.tos = 0;
	ext.mask.tos = 0xff;
	takes(here, there, &ext, sizeof(ext), &udp, 14 + 19, "IPv4, longer, by its address");
	takes(here, there, &ext, sizeof(ext), &udp, 14 + 1, "IPv4, longer, by its service");
	ext.val.proto = IPPROTO_UDP;
	ext.mask.proto = 0xff;
	takes(here, there, &ext, sizeof(ext), &udp, 14 + 9, "IPv4, longer, by its protocol");
	memcpy(v6.val.dst_ip, six.bytes + 14 + 24, 16);
	memset(v6.mask.dst_ip, 0xff, 16);
	takes(here, there, &v6, sizeof(v6), &six, 14 + 39, "IPv6");
	v6.val.next_hdr = IPPROTO_UDP;
	v6.mask.next_hdr = 0xff;
	takes(here, there, &v6, sizeof(v6), &six, 14 + 6, "IPv6, by its protocol");
	port.val.dst_port = htobe16(2000);
	port.mask.dst_port = 0xffff;
	takes(here, there, &port, sizeof(port), &udp, 14 + 20 + 3, "UDP");
	port.type = IBV_FLOW_SPEC_TCP;
	port.val.src_port = htobe16(1000);
	port.mask.src_port = 0xffff;
	takes(here, there, &port, sizeof(port), &tcp, 14 + 20 + 1, "TCP");
	tunnel.val.tunnel_id = htobe32(KEY);
	tunnel.mask.tunnel_id = htobe32(0xffffff);
	takes(here, there, &tunnel, sizeof(tunnel), &vx, 14 + 28 + 6, "VXLAN");
	generic.val.key = htobe32(KEY);
	generic.mask.key = ~0;
	takes(here, there, &generic, sizeof(generic), &key, 14 + 20 + 7, "GRE");
	takes(here, there, &label, sizeof(label), &udp, 14, "MPLS");
	takes(here, there, &esp, sizeof(esp), &udp, 14, "ESP");
	memcpy(eth.val.src_mac, HERE, 6);
	memset(eth.mask.src_mac, 0xff, 6);
	takes(here, there, &eth, sizeof(eth), &vx, 14 + 28 + 8 + 11, "Ethernet inside");
	v4.type |= IBV_FLOW_SPEC_INNER;
	takes(here, there, &v4, sizeof(v4), &vx, 14 + 28 + 8 + 14 + 15, "IPv4 inside");
	ext.type |= IBV_FLOW_SPEC_INNER;
	takes(here, there, &ext, sizeof(ext), &vx, 14 + 28 + 8 + 14 + 19, "IPv4 inside, longer");
	port.type = IBV_FLOW_SPEC_INNER | IBV_FLOW_SPEC_UDP;
	takes(here, there, &port, sizeof(port), &vx, 14 + 28 + 8 + 34 + 3, "UDP inside");
	tunnel.type |= IBV_FLOW_SPEC_INNER;
	takes(here, there, &tunnel, sizeof(tunnel), &vx, 14, "VXLAN inside");
	generic.type |= IBV_FLOW_SPEC_INNER;
	takes(here, there, &generic, sizeof(generic), &vx, 14, "GRE inside");
}

/* A rule that drops counts, and no packet comes. */
static void dropped(struct end *here, struct end *there)
{
	struct ibv_counters_init_attr none = {};
	struct ibv_counters *counters = ibv_create_counters(there->bed.context, &none);
	struct ibv_counter_attach_attr packets = { IBV_COUNTER_PACKETS, 0, 0 };
	struct ibv_flow_spec_counter_action count = { IBV_FLOW_SPEC_ACTION_COUNT, sizeof(count), counters };
	struct ibv_flow_spec_action_drop drop = { IBV_FLOW_SPEC_ACTION_DROP, sizeof(drop) };
	struct packet packet = ip4(IPPROTO_UDP);
	struct rule rule = to_mac(THERE);
	struct ibv_flow *flow;
	unsigned int at = 0;
	uint64_t count_of = 0;
	struct ibv_wc wc;

	must(counters, "ibv_create_counters");
	must(!ibv_attach_counters_point_flow(counters, &packets, NULL), "ibv_attach_counters_point_flow");
	add(&rule, &at, &drop, sizeof(drop));
	add(&rule, &at, &count, sizeof(count));
	flow = make_rule(there->qp, &rule, "that drops");
	must(flow, "ibv_create_flow");
	send_packet(here, &packet, 0);
	while (!count_of)
		must(!ibv_read_counters(counters, &count_of, 1, 0), "ibv_read_counters");
	printf("counted: %" PRIu64 ", came: %d\n", count_of,
	       ibv_poll_cq(ibv_cq_ex_to_cq(there->cq), 1, &wc));
	must(!ibv_destroy_flow(flow), "ibv_destroy_flow");
	must(!ibv_destroy_counters(counters), "ibv_destroy_counters");
}

struct match {
	size_t size;
	uint8_t bytes[64];
};

/* Actions of libmlx5's rules. What misses goes to the rule for what no other one takes. */
static void actions(struct end *here, struct end *there)
{
	enum { ALLOC_FLOW_COUNTER = 0x939 };
	struct match mask = { 64, {} }, value = { 64, {} };
	struct mlx5dv_flow_matcher_attr attr = { .type = IBV_FLOW_ATTR_NORMAL, .match_criteria_enable = 1,
		.match_mask = (void *)&mask };
	struct ibv_flow_attr rest = { .type = IBV_FLOW_ATTR_ALL_DEFAULT, .size = sizeof(rest), .port = 1 };
	struct packet packet = ip4(IPPROTO_UDP), other = packet;
	struct mlx5dv_flow_action_attr does[2] = {};
	uint8_t in[16] = {}, out[16] = {};
	struct mlx5dv_flow_matcher *matcher;
	struct mlx5dv_devx_obj *counter;
	struct ibv_flow *flow, *default_rule;

	put(in, ALLOC_FLOW_COUNTER, 2);
	counter = mlx5dv_devx_obj_create(there->bed.context, in, sizeof(in), out, sizeof(out));
	must(counter, "mlx5dv_devx_obj_create");
	memset(mask.bytes + 8, 0xff, 6);
	memcpy(value.bytes + 8, THERE, 6);
	matcher = mlx5dv_create_flow_matcher(there->bed.context, &attr);
	must(matcher, "mlx5dv_create_flow_matcher");
	default_rule = ibv_create_flow(there->qp, &rest);
	must(default_rule, "ibv_create_flow");
	/* One more group, for which there is no other rule. */
	other.bytes[5] ^= 1;
	other.length += OTHER;
	receive(there, 2);

	does[0].type = MLX5DV_FLOW_ACTION_DROP;
	flow = mlx5dv_create_flow(matcher, (void *)&value, 1, does);
	must(flow, "mlx5dv_create_flow that drops");
	send_packet(here, &packet, 0);
	send_packet(here, &other, 0);
	came(there, "drop: the next", &other);
	must(!ibv_destroy_flow(flow), "ibv_destroy_flow");

	does[0].type = MLX5DV_FLOW_ACTION_DEFAULT_MISS;
	does[1].type = MLX5DV_FLOW_ACTION_COUNTERS_DEVX;
	does[1].obj = counter;
	flow = mlx5dv_create_flow(matcher, (void *)&value, 2, does);
	must(flow, "mlx5dv_create_flow that misses");
	printf("counter in use: %s\n", name_of(mlx5dv_devx_obj_destroy(counter)));
	send_packet(here, &packet, 0);
	came(there, "miss: the rule for the rest takes", &packet);
	must(!ibv_destroy_flow(flow), "ibv_destroy_flow");
	must(!ibv_destroy_flow(default_rule), "ibv_destroy_flow");
	must(!mlx5dv_destroy_flow_matcher(matcher), "mlx5dv_destroy_flow_matcher");
	printf("counter: %s\n", name_of(mlx5dv_devx_obj_destroy(counter)));
}

int main(void)
{
	struct end here = open_end(), there = open_end();

	specifications(&here, &there);
	dropped(&here, &there);
	actions(&here, &there);
	close_end(&here);
	close_end(&there);
	return 0;
}
