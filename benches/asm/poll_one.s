    push r14
    push rbx
    push rax
    mov rax,QWORD PTR [rdi+0x80]
    mov eax,DWORD PTR [rax]
    cmp eax,0x1
    jne 11
    mov rax,QWORD PTR [rdi+0x68]
    mov rdx,QWORD PTR [rax+0x38]
    bswap rdx
    xor rdx,QWORD PTR [rdi+0x48]
    test dl,0x1
    jne 1
    mov ecx,edx
    mov r8d,DWORD PTR [rax+0x20]
    cmp QWORD PTR [rdi+0x30],r8
    jne 3
    mov r9,QWORD PTR [rdi+0x38]
    shr rdx,0x10
    cmp cl,0x4
    jae 6
0:
    movzx ecx,WORD PTR [r9+0x80]
    movzx r8d,WORD PTR [r9]
    cmp cx,r8w
    je 11
    movzx r10d,cx
    mov rcx,QWORD PTR [r9+0x100]
    mov r11d,DWORD PTR [r9+0x110]
    and r11d,r10d
    shl r11d,0x4
    mov r8,QWORD PTR [rcx+r11*1]
    mov rcx,QWORD PTR [rcx+r11*1+0x8]
    mov r11,rcx
    shr r11,0x28
    cmp dx,r11w
    jne 11
    inc r10d
    mov WORD PTR [r9+0x80],r10w
    shr rcx,0x20
    jmp 9
1:
    dec DWORD PTR [rdi+0xd0]
    mov eax,0x1
    je 14
2:
    xor edx,edx
    add rsp,0x8
    pop rbx
    pop r14
    ret
3:
    mov r9,QWORD PTR [rdi+0x98]
    mov r11d,r8d
    bswap r11d
    mov r10d,DWORD PTR [rdi+0xc4]
    mov r9,QWORD PTR [r9+0x10]
    mov ebx,r11d
    shr ebx,0x9
    and ebx,0x7ff8
    mov r14,QWORD PTR [r9+rbx*1]
    test r14,r14
    je 11
    and r11d,0xfff
    shl r11d,0x4
    mov r9,QWORD PTR [r14+r11*1+0x8]
    mov rbx,QWORD PTR [r14+r11*1]
    mov r11,QWORD PTR [r14+r11*1+0x8]
    cmp r10d,ebx
    jne 4
    cmp r11,r9
    sete r10b
    cmp r9,0x2
    setae r11b
    test r11b,r10b
    jne 5
    jmp 11
4:
    cmp r9,0x2
    jb 11
    cmp r11,r9
    jne 11
    shr rbx,0x20
    cmp r10d,ebx
    jne 11
5:
    mov QWORD PTR [rdi+0x30],r8
    mov QWORD PTR [rdi+0x38],r9
    shr rdx,0x10
    cmp cl,0x4
    jb 0
6:
    test cl,0xc
    sete r8b
    lea r10d,[rcx-0x10]
    cmp r10b,0x40
    setb r10b
    test r8b,r10b
    je 11
    mov r10,QWORD PTR [r9+0x190]
    cmp DWORD PTR [r9+0x188],0x1
    jne 7
    movzx r8d,dx
    cmp QWORD PTR [r10+0x18],r8
    jbe 11
    mov r9,QWORD PTR [r10+0x10]
    mov r10,QWORD PTR [r10+0x20]
    mov r11d,r8d
    shr r11d,0x6
    mov rbx,QWORD PTR [r10+r11*8]
    bt rbx,rdx
    jae 11
    lea r10,[r10+r11*8]
    mov r8,QWORD PTR [r9+r8*8]
    and edx,0x3f
    lock btr QWORD PTR [r10],rdx
    jb 8
    jmp 11
7:
    movzx r8d,WORD PTR [r10+0x100]
    movzx r9d,WORD PTR [r10+0x80]
    cmp r8w,dx
    jne 11
    cmp r8w,r9w
    je 11
    mov r8,QWORD PTR [r10+0x180]
    mov r9d,DWORD PTR [r10+0x188]
    dec r9d
    and r9d,edx
    movzx r9d,r9w
    mov r8,QWORD PTR [r8+r9*8]
    inc edx
    mov WORD PTR [r10+0x100],dx
8:
    shr cl,0x4
    or cl,0x80
9:
    mov edx,DWORD PTR [rdi+0xc0]
    inc edx
    mov DWORD PTR [rdi+0xc0],edx
    mov r9,QWORD PTR [rdi+0x40]
    add r9,rax
    cmp r9,QWORD PTR [rdi+0x78]
    jne 10
    mov r9,QWORD PTR [rdi+0x70]
    xor BYTE PTR [rdi+0x48],0x1
10:
    mov QWORD PTR [rdi+0x68],r9
    movzx r9d,cl
    mov r10,QWORD PTR [_ZN7mlx5_cq10completion5FACTS]
    movzx ecx,BYTE PTR [r10+r9*2+0x1]
    cmp BYTE PTR [r10+r9*2],0x1
    jne 12
    mov eax,DWORD PTR [rax+0x2c]
    bswap eax
    jmp 13
11:
    call _ZN4mlx52cq15CompletionQueue9poll_rest
    and eax,0x1
    add rsp,0x8
    pop rbx
    pop r14
    ret
12:
    xor eax,eax
13:
    xor r9d,r9d
    cmp cl,0x31
    sete r9b
    add r8,rax
    add r8,r9
    add QWORD PTR [rsi],r8
    mov rax,QWORD PTR [rdi+0x90]
    mov DWORD PTR [rax+0x2c],edx
    mov rax,QWORD PTR [rdi+0x88]
    and edx,0xffffff
    bswap edx
    mov DWORD PTR [rax],edx
    mov eax,0x1
    mov edx,0x1
    add rsp,0x8
    pop rbx
    pop r14
    ret
14:
    call QWORD PTR [_ZN4mlx52cq15CompletionQueue11check_alive]
    mov eax,0x1
    jmp 2
