// SPDX-License-Identifier: Apache-2.0
package rlock.interop;

import java.net.URI;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;
import org.redisson.config.SingleServerConfig;

/** Makes Redisson clients, whatever the version. */
final class Clients {
  private Clients() {}

  static String version() {
    return Redisson.class.getPackage().getImplementationVersion();
  }

  static String id(RedissonClient client) throws Exception {
    return (String) Reflection.call(client, "getId");
  }

  /**
   * @param uri  {@code redis://}, {@code redis+sentinel://...?master=NAME} or {@code
   *     redis+cluster://}; several hosts separated by commas
   * @param watchdogMs  lease of holds that are renewed
   * @param fairWaitMs  how long a place in a fair queue lasts, where the version lets one choose
   * @param commandMs  how long a reply is waited for; 0, or more than one server: the default
   */
  static RedissonClient open(String uri, long watchdogMs, long safetyPollMs, long fairWaitMs,
      long commandMs) throws Exception {
    Config config = new Config();
    // The locks write no encoded values; the default codecs need libraries and module access.
    config.setCodec(StringCodec.INSTANCE);
    config.setThreads(4);
    config.setNettyThreads(4);
    config.setLockWatchdogTimeout(watchdogMs);
    if (fairWaitMs > 0) {
      Reflection.callIfPresent(config, "setFairLockWaitTimeout", fairWaitMs);
    }
    String scheme = uri.substring(0, uri.indexOf("://"));
    String rest = uri.substring(uri.indexOf("://") + 3);
    String query = rest.contains("?") ? rest.substring(rest.indexOf('?') + 1) : "";
    String hosts = rest.contains("?") ? rest.substring(0, rest.indexOf('?')) : rest;
    String[] nodes = hosts.replaceAll("/.*", "").split(",");
    for (int i = 0; i < nodes.length; i++) {
      nodes[i] = "redis://" + nodes[i];
    }
    switch (scheme) {
      case "redis+sentinel":
        config.useSentinelServers().setMasterName(parameter(query, "master"))
            .addSentinelAddress(nodes);
        break;
      case "redis+cluster":
        config.useClusterServers().addNodeAddress(nodes);
        break;
      default: {
        SingleServerConfig server = config.useSingleServer().setAddress(nodes[0])
            .setConnectionMinimumIdleSize(2).setConnectionPoolSize(32)
            .setDatabase(database(URI.create(uri)));
        if (commandMs > 0) {
          server.setTimeout(Math.toIntExact(commandMs));
        }
        break;
      }
    }
    return Redisson.create(config);
  }

  private static int database(URI uri) {
    String path = uri.getPath();
    return path == null || path.length() < 2 ? 0 : Integer.parseInt(path.substring(1));
  }

  private static String parameter(String query, String name) {
    for (String pair : query.split("&")) {
      if (pair.startsWith(name + "=")) {
        return pair.substring(name.length() + 1);
      }
    }
    throw new IllegalArgumentException("the URI has no " + name);
  }
}
