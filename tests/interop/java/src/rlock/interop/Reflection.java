// SPDX-License-Identifier: Apache-2.0
package rlock.interop;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;

/** Calls what not every version of Redisson has, so that one source compiles for all of them. */
final class Reflection {
  private Reflection() {}

  static Object call(Object target, String name, Object... arguments) throws Exception {
    Method method = find(target.getClass(), name, arguments);
    if (method == null) {
      throw new UnsupportedOperationException("this version has no " + name);
    }
    try {
      return method.invoke(target, arguments);
    } catch (InvocationTargetException failure) {
      if (failure.getCause() instanceof Exception) {
        throw (Exception) failure.getCause();
      }
      throw failure;
    }
  }

  static void callIfPresent(Object target, String name, Object... arguments) throws Exception {
    if (find(target.getClass(), name, arguments) != null) {
      call(target, name, arguments);
    }
  }

  /** A public method of a public class or interface: others may not be called from here. */
  private static Method find(Class<?> type, String name, Object[] arguments) {
    if (type == null) {
      return null;
    }
    if (Modifier.isPublic(type.getModifiers())) {
      for (Method method : type.getMethods()) {
        if (method.getName().equals(name)
            && Modifier.isPublic(method.getDeclaringClass().getModifiers())
            && accepts(method.getParameterTypes(), arguments)) {
          return method;
        }
      }
    }
    for (Class<?> each : type.getInterfaces()) {
      Method method = find(each, name, arguments);
      if (method != null) {
        return method;
      }
    }
    return find(type.getSuperclass(), name, arguments);
  }

  private static boolean accepts(Class<?>[] parameters, Object[] arguments) {
    if (parameters.length != arguments.length) {
      return false;
    }
    for (int i = 0; i < parameters.length; i++) {
      Class<?> type = parameters[i];
      Object argument = arguments[i];
      boolean fits = type == int.class ? argument instanceof Integer
          : type == long.class ? argument instanceof Long
          : type == boolean.class ? argument instanceof Boolean : type.isInstance(argument);
      if (!fits) {
        return false;
      }
    }
    return true;
  }
}
