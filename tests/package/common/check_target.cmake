# SPDX-License-Identifier: Apache-2.0
# rlock::rlock must force no flag on its users.

function(check_target target)
  get_target_property(aliased ${target} ALIASED_TARGET)
  if(aliased)
    set(target ${aliased})
  endif()
  foreach(property IN ITEMS INTERFACE_COMPILE_OPTIONS INTERFACE_LINK_OPTIONS)
    get_target_property(value ${target} ${property})
    if(value)
      message(FATAL_ERROR "${target} forces ${property} on its users: ${value}")
    endif()
  endforeach()
  get_target_property(definitions ${target} INTERFACE_COMPILE_DEFINITIONS)
  if(definitions AND NOT definitions STREQUAL "RLOCK_STATIC_DEFINE")
    message(FATAL_ERROR "${target} forces definitions on its users: ${definitions}")
  endif()
endfunction()
