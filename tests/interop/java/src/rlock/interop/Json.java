// SPDX-License-Identifier: Apache-2.0
package rlock.interop;

/** One flat object on one line. */
final class Json {
  private final StringBuilder text = new StringBuilder("{");

  Json add(String key, Object value) {
    if (text.length() > 1) {
      text.append(',');
    }
    quote(key);
    text.append(':');
    if (value == null || value instanceof Number || value instanceof Boolean) {
      text.append(value);
    } else {
      quote(value.toString());
    }
    return this;
  }

  private void quote(String value) {
    text.append('"');
    for (char character : value.toCharArray()) {
      if (character == '"' || character == '\\') {
        text.append('\\').append(character);
      } else if (character < ' ') {
        text.append(String.format("\\u%04x", (int) character));
      } else {
        text.append(character);
      }
    }
    text.append('"');
  }

  @Override
  public String toString() {
    return text + "}";
  }
}
